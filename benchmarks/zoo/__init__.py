"""Models as people train them: plain PyTorch, default layers with bias, raw or standardised data, usual recipes.

`victim.py` says what a victim is, `registry.py` lists them; `data.py`, `networks.py` and `loops.py` are what they
share. Those files import nothing from exhume. `auditing.py` audits one of them as a new user would, `scoring.py` and
`facts.py` measure what is true by themselves, `sentences.py` holds what a page says against it.
"""
