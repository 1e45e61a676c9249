"""`exhume serve`: a page of this machine on which files are dropped, measured, scanned and audited.

`guard.py` lets nobody in but the browser of whoever started it, `uploads.py` keeps files in a private folder until the
end, `measuring.py` and `findings.py` say at once what a file is, `audits.py` runs audits as processes of their own,
`earlier.py` lists those that are done, `pages.py` makes pages, `app.py` says which address leads where, `server.py`
starts and ends it all.
"""
