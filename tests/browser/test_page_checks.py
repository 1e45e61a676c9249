"""The checks find what they are for: each text of this page that cannot be read is named, and no other."""

from typing import TYPE_CHECKING

from page_checks import CONTRAST, HEADINGS, UNNAMED

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGE = """<!doctype html><html><body style="background: #fff; color: #000">
<h1>plain</h1>
<p style="color: rgb(0 0 0 / .3)">thin ink</p>
<p style="color: rgb(0 0 0 / .8)">thick ink</p>
<div style="opacity: .4"><p>faded parent</p></div>
<div style="opacity: .9"><p>hardly faded parent</p></div>
<div style="background: #000"><p style="background: rgb(255 255 255 / .1)">dark under a thin layer</p></div>
<div style="background: #000"><p style="background: rgb(255 255 255 / .9)">dark under a thick layer</p></div>
<p style="color: color-mix(in srgb, #000, #fff 70%)">mixed</p>
<summary style="color: #aaa">a tag of another kind</summary>
<input placeholder="asked faintly" aria-label="faint">
<button disabled style="opacity: .3">not now</button>
<p style="opacity: 0">not seen</p>
<svg><text y="20" fill="#bbb">drawn</text><text y="40" fill="#000">drawn well</text></svg>
<style>input::placeholder { color: #ccc }</style>
</body></html>"""


def test_contrast_counts_what_lets_light_through(browser: "Browser") -> None:
    page = browser.new_page()
    page.set_content(PAGE)
    assert page.evaluate(CONTRAST) == [
        "thin ink",
        "faded parent",
        "dark under a thin layer",
        "mixed",
        "a tag of another kind",
        "asked faintly",
        "drawn",
    ]
    page.set_content("<html style='color-scheme: dark'><body><p style='color: #111'>night</p><p>day</p></body></html>")
    assert page.evaluate(CONTRAST) == ["night"], "without a colour of its own a page lies on the browser's"
    page.close()


def test_names_and_headings_that_lack_are_found(browser: "Browser") -> None:
    page = browser.new_page()
    page.set_content("<h1>one</h1><h3>three</h3><input id='lost'><label>named <input></label>")
    assert page.evaluate(HEADINGS) == [3]
    assert [text for text in page.evaluate(UNNAMED) if "lost" in text]
    assert len(page.evaluate(UNNAMED)) == 1
    page.close()
