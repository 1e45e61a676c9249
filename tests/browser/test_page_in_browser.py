"""The page as a reader has it: in a browser, with mouse and keyboard, on a desk, on a phone and on paper."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from exhume.files import read_json
from exhume.report.page import render
from page_checks import CONTRAST, HEADINGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

Visit = Callable[..., Any]
Keep = Callable[..., None]
PHONE: "ViewportSize" = {"width": 375, "height": 844}
DESK: "ViewportSize" = {"width": 1200, "height": 900}
PAPER: "ViewportSize" = {"width": 718, "height": 1000}
READY = "performance.getEntriesByName('ready')[0].startTime"


def slide(page: "Page", selector: str, value: int) -> None:
    page.eval_on_selector(
        selector,
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })); }",
        value,
    )


def overflow(page: "Page") -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("name", ["blurred", "sharp", "no truth"])
def test_it_opens_without_complaints_or_a_single_request(visit: Visit, pages: dict[str, Path], name: str) -> None:
    opened = visit(name)
    assert opened.complaints == []
    outside = [address for address in opened.requests if not address.startswith("data:")]
    assert outside == [pages[name].as_uri()]
    assert overflow(opened.page) == 0
    assert opened.page.locator("h1").inner_text().startswith("Partly recovered: ")
    assert opened.page.evaluate(HEADINGS) == []


def test_it_can_be_used_within_a_second(browser: "Browser", pages: dict[str, Path]) -> None:
    """From the start of navigation until the last handler is in place; on a busy machine, by processor time."""
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(pages["sharp"].as_uri())
    ready = float(page.evaluate(READY))
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    context.close()
    assert ready > 0
    assert min(ready, 1000 * metrics["ThreadTime"]) < 1000


def test_the_slider_moves_between_the_original_and_what_was_recovered(visit: Visit) -> None:
    page = visit("sharp").page
    stage = page.locator(".stage")
    edge = "stage => getComputedStyle(stage).getPropertyValue('--split')"
    assert stage.evaluate(edge) == "50%"
    page.locator("#split").focus()
    page.keyboard.press("ArrowRight")
    assert stage.evaluate(edge) == "51%"
    box = stage.bounding_box()
    assert box is not None
    stage.click(position={"x": 0.25 * box["width"], "y": 10})
    assert 20 <= float(stage.evaluate(edge).rstrip("%")) <= 30
    first = page.locator("#stage-true").get_attribute("src")
    page.locator("button.pick").nth(2).click()
    assert page.locator("#stage-true").get_attribute("src") != first
    assert page.locator("button.pick[aria-pressed=true]").count() == 1
    assert "Slide to compare" in page.locator("#stage-caption").inner_text()


def test_pictures_in_the_file_wait_for_the_button_and_blurred_ones_have_none(visit: Visit) -> None:
    page = visit("sharp").page
    blur = "image => getComputedStyle(image).filter"
    images = [page.locator(selector).first for selector in (".gallery img", ".stage img", ".strip img")]
    assert all("blur" in image.evaluate(blur) for image in images)
    page.locator("#reveal").click()
    assert [image.evaluate(blur) for image in images] == ["none"] * 3
    assert page.locator("#reveal").get_attribute("aria-pressed") == "true"
    page.locator("#reveal").click()
    assert all("blur" in image.evaluate(blur) for image in images)
    other = visit("blurred").page
    assert other.locator("#reveal").count() == 0
    sizes = other.eval_on_selector_all(".gallery img", "images => images.map(image => image.naturalWidth)")
    assert sizes
    assert max(sizes) <= 6


def test_scrubbing_moves_the_curves_the_pictures_and_the_dots(visit: Visit) -> None:
    from playwright.sync_api import expect

    page = visit().page
    strip, dot = page.locator(".strip img").first, page.locator("#distances circle").last
    end = (strip.evaluate("image => image.style.transform"), dot.get_attribute("cy"))
    assert "Iteration 90" in page.locator("#read-off").inner_text()
    slide(page, "#reading", 0)
    assert page.locator("#read-off").inner_text().startswith("Iteration 0, 0 passes: loss 1")
    start = (strip.evaluate("image => image.style.transform"), dot.get_attribute("cy"))
    assert start != end
    assert start[0] == "translateX(0%)"
    line = page.locator("svg.plot[data-plot=loss]:not([hidden]) .cursor")
    assert line.get_attribute("x1") == "0%"
    page.locator("input[name=across][value=passes]").check()
    assert page.locator("svg.plot:not([hidden])").evaluate_all("all => all.map(plot => plot.dataset.across)") == [
        "passes",
        "passes",
    ]
    before = page.locator("#read-off").inner_text()
    page.locator("#play").click()
    expect(page.locator("#read-off")).not_to_have_text(before)
    # in one step: it ends by itself after seconds, and a click that comes later would start it again
    stopped = "play => { if (play.textContent === 'Pause') play.click(); return play.textContent; }"
    assert page.locator("#play").evaluate(stopped) == "Play"
    page.locator("input[name=across][value=iteration]").check()


def test_every_column_sorts_both_ways(visit: Visit) -> None:
    page = visit().page
    table = page.locator("table.sortable")
    heads = table.locator("thead button")
    for column in range(heads.count()):
        for direction in ("ascending", "descending"):
            heads.nth(column).click()
            head = table.locator("thead th").nth(column)
            if head.get_attribute("aria-sort") != direction:
                heads.nth(column).click()
            values = table.locator(f"tbody tr td:nth-child({column + 1})").evaluate_all(
                "cells => cells.map(cell => cell.dataset.value)"
            )
            numbers = [float(value) for value in values if value != ""]
            assert numbers == sorted(numbers, reverse=direction == "descending")
    assert table.locator("th[aria-sort]").count() == 1


def test_the_calculator_invents_no_n_where_nobody_knows_it(visit: Visit) -> None:
    page = visit("no truth").page
    says, drawing = page.locator("#calculator-says"), page.locator("[data-gauge=calculator]")
    assert page.locator("#calculator-n").input_value() == ""
    assert "n is not known" in says.inner_text()
    assert not drawing.is_visible()
    page.locator("#calculator-n").fill("4")
    assert "p/n = 15" in says.inner_text()
    assert drawing.is_visible()
    page.locator("#calculator-reset").click()
    assert page.locator("#calculator-n").input_value() == ""
    assert "n is not known" in says.inner_text()


def test_the_calculator_says_in_which_zone_another_size_would_be(visit: Visit) -> None:
    page = visit().page
    says = page.locator("#calculator-says")
    assert "fits labels, data not determined" in says.inner_text()
    page.locator("#calculator-p").fill("1000000")
    assert "p/(dn) = 400" in says.inner_text()
    assert says.inner_text().endswith("enough equations for the data.")
    slide(page, "#calculator-n-slider", 1000)
    assert "below label fitting" in says.inner_text()
    page.locator("#calculator-reset").click()
    assert page.locator("#calculator-p").input_value() == "60"
    places = page.locator("[data-gauge=calculator] rect").evaluate_all(
        "bands => bands.map(band => parseFloat(band.getAttribute('width')))"
    )
    assert sum(places) == pytest.approx(100)


def test_the_paragraph_for_the_model_card_can_be_copied(visit: Visit) -> None:
    page = visit().page
    button = page.locator("button[data-copies=model-card]")
    # what it says is written down: it says so for two seconds, and a busy machine looks later
    button.evaluate(
        """button => { window.said = new Promise((both) => { const texts = [];
        new MutationObserver(() => { if (texts.push(button.textContent) === 2) both(texts); })
          .observe(button, { childList: true }); }); }"""
    )
    button.click()
    assert page.evaluate("said") == ["Copied", "Copy paragraph"]
    assert "NIST AI 100-2" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("name", ["blurred", "no truth"])
def test_a_phone_shows_everything_without_sideways_scrolling(visit: Visit, keep: Keep, name: str) -> None:
    page = visit(name).page
    page.set_viewport_size(PHONE)
    assert overflow(page) == 0
    ends = page.eval_on_selector_all("section > *", "all => all.map(e => e.getBoundingClientRect().right)")
    assert max(ends) <= PHONE["width"]
    keep(page, f"phone-{name.replace(' ', '-')}")


def test_on_a_phone_a_reason_stands_below_its_row(browser: "Browser", pages: dict[str, Path], tmp_path: Path) -> None:
    """A row with many columns is not scrolled sideways, and what was not made is a list, not rows of dashes."""
    content = read_json(pages["blurred"].with_suffix(".json"))
    attempt = {"method": "split-newton", "told": None, "why": "It fits.", "seed": 1, "outcome": "partial", "note": ""}
    numbers = {"candidates": 3, "loss": 1e-3, "held_out_loss": 0.02, "passes": 300.0, "seconds": 1.5}
    why = "A long reason, which goes on and on, so that it would have a column of its own on a desk. " * 2
    layer = {"name": "head", "kind": "Linear", "parameters": 60, "leak": "attacked", "why": why}
    way = {"title": "Plain descent", "told": True, "judged": "yes", "why": why}
    content |= {"attempts": [attempt | numbers], "passed_over": [{"method": "replay", "why": "No recipe."}]}
    content |= {"layers": [layer], "recipes": {"lines": [way], "measured": [], "broken": [], "told": ["plain"]}}
    (tmp_path / "audit.html").write_text(render(content), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "audit.html").as_uri())
    assert page.locator("#not-made li").all_inner_texts() == ["replay: No recipe."]
    assert page.locator("#attack tbody tr").count() == 1
    boxes = "rows => rows.map(row => [...row.children].map(cell => cell.getBoundingClientRect().toJSON()))"
    for size, below in ((PHONE, True), (DESK, False)):
        page.set_viewport_size(size)
        assert overflow(page) == 0
        rows = page.eval_on_selector_all("table.cards tbody tr", boxes)
        assert len(rows) == 3 + len(content["results"])
        for *cells, reason in rows:
            assert (reason["top"] >= max(cell["bottom"] for cell in cells) - 1) is below
            assert all(cell["right"] <= size["width"] for cell in (*cells, reason))
    page.close()


def test_on_paper_there_is_no_button_and_nothing_is_cut_off(visit: Visit, keep: Keep, tmp_path: Path) -> None:
    page = visit().page
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    assert overflow(page) == 0
    buttons = page.locator("#reveal, button.copy, .calculator, .reader, .compare, nav, a.button")
    assert not any(buttons.nth(index).is_visible() for index in range(buttons.count()))
    cut = page.eval_on_selector_all(".scroll", "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length")
    assert cut == 0
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    keep(page, "print")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background_by_day_and_by_night(visit: Visit, keep: Keep, scheme: Any) -> None:
    page = visit("sharp").page
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    keep(page, scheme)


def test_everything_that_can_be_used_can_be_reached_by_keyboard_and_has_a_name(visit: Visit) -> None:
    page = visit("sharp").page
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, [tabindex]")].filter((element) =>
        !(element.getAttribute("aria-label") || element.textContent.trim() || (element.labels || []).length)).length"""
    )
    assert nameless == 0
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.locator("a.skip").focus()
    assert page.locator("a.skip").bounding_box()["x"] > 0, "it comes into view where it is needed"
    for identifier in page.eval_on_selector_all("a[href^='#']", "links => links.map(link => link.hash.slice(1))"):
        assert page.locator(f"#{identifier}").count() == 1


def test_without_its_script_the_page_still_shows_the_evidence(without_script: "Page") -> None:
    page = without_script
    assert page.locator(".gallery img").count() == 6, "three pairs: of the fourth face nothing came back"
    assert page.locator("svg.plot[data-across=iteration]").first.is_visible()
    assert not page.locator(".calculator").is_visible()
    assert not page.locator("#compare").is_visible()
