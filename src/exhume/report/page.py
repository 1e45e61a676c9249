"""The report as one HTML file, made from its content alone: what is in report.json rebuilds the same page."""

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError
from markupsafe import Markup, escape

from exhume.errors import ExhumeError
from exhume.experiments.run import RunFolder
from exhume.files import read_json, write_json, write_text
from exhume.report.charts import ZONE_NAMES, error_charts, gauge_chart, loss_charts
from exhume.report.content import REPORT_SCHEMA, describe, gather, shown, without_pictures
from exhume.report.evidence import Pictures
from exhume.report.figures import draw_candidates, draw_pairs, draw_trace
from exhume.report.numbers import is_plain, percent, plain, split_power
from exhume.report.run_subject import subject_of_run
from exhume.theory import ZONE_TITLES

MOST_FIGURE_PICTURES = 100
OPTION = re.compile(r"(?<!\S)\(?--[^\s<]+")
PAIRS, CANDIDATES = "pairs.png", "candidates.png"


def write_report(run: RunFolder, reveal: bool, factory: str | None = None) -> Path:
    """Writes report.json, report.html and the figures into the run folder; returns the page.

    Without `reveal` no file that is written here holds a sharp picture, the figures included. `factory` names code of
    the user's own that may run to make the features.
    """
    with run.alone("this report"):
        subject = subject_of_run(run, reveal=reveal, factory=factory)
        evidence = gather(subject)
        content = describe(subject, evidence, reveal)
        for name in (PAIRS, CANDIDATES):  # of an earlier report, which may have been allowed to be sharp
            (run.path / name).unlink(missing_ok=True)
        if evidence.pictures is not None:
            _draw_pictures(run, evidence.pictures, reveal)
        if subject.trace and subject.found is not None:
            draw_trace(subject.trace, run.path / "trace.png", subject.found.held_out_loss)
        write_page(content, run.report)
        return run.report


def write_page(content: dict[str, Any], page: Path) -> None:
    """The page, and beside it the content that it is made of."""
    write_json(page.with_suffix(".json"), content)
    write_text(page, render(content))


def rebuild(report: Path) -> Path:
    """The page from a report.json, which may come from another machine; nothing else is read."""
    content = read_json(report)
    if content.get("schema") != REPORT_SCHEMA:
        raise ExhumeError(
            f"expected a report of schema {REPORT_SCHEMA} in {report}, found {str(content.get('schema'))[:40]!r}; "
            "use the exhume version that wrote it"
        )
    page = report.with_suffix(".html")
    try:
        write_text(page, render(content))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError) as problem:
        raise ExhumeError(f"expected a whole report in {report}, found it damaged: {problem}") from problem
    return page


def render(content: dict[str, Any]) -> str:
    """The page. Every text of the content is escaped; the script is fixed and the page allows no other."""
    environment = _environment()
    script = environment.get_template("page.js.jinja").render()
    attack = content["attack"]
    chance = next((line["chance"] for line in content["results"] if line["key"] == "median_relative_error"), None)
    return environment.get_template("page.html.jinja").render(
        report=content,
        gauge_chart=gauge_chart(content["gauge"]),
        loss_charts=loss_charts(content["trace"], content["frames"], attack and attack["held_out_loss"]),
        error_charts=error_charts(content["frames"], chance),
        zones=[{"zone": zone, "name": name, "title": ZONE_TITLES[zone]} for zone, name in ZONE_NAMES],
        style=Markup(environment.get_template("page.css.jinja").render()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        json_base64=base64.b64encode(json.dumps(without_pictures(content), indent=2).encode()).decode(),
    )


def render_without_script(template: str, content: dict[str, Any]) -> str:
    """A page that is only read: of two versions of a model, or of a ranking."""
    style = Markup(_environment().get_template("page.css.jinja").render())
    return _environment().get_template(template).render(report=content, style=style)


@cache
def _environment() -> Environment:
    """Kept, because compiling the templates takes longer than filling them in."""
    environment = Environment(
        loader=PackageLoader("exhume", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "plain": plain,
        "power": power,
        "unbroken": unbroken,
    }
    return environment


def number(value: float | int | None) -> Markup:
    """A number for HTML; tiny and huge ones as powers of ten.

    >>> number(3.2e-08), number(None)
    (Markup('3.2\u202f\xd7\u202f10<sup>\u22128</sup>'), Markup('\u2013'))
    """
    if value is None:
        return Markup("\u2013")
    if isinstance(value, int) or is_plain(value):
        return Markup("{}").format(plain(value))
    mantissa, exponent = split_power(value)
    return Markup("{}\u202f\u00d7\u202f{}").format(mantissa, power(exponent))


def unbroken(text: str) -> Markup:
    """A text in which no option of the command line is split at the end of a line, as browsers do behind a hyphen.

    >>> unbroken("a <b> without --initial.")
    Markup('a &lt;b&gt; without <span class="whole">--initial.</span>')
    """
    return Markup(OPTION.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def power(exponent: int) -> Markup:
    return Markup("10<sup>{}</sup>").format(str(exponent).replace("-", "\u2212"))


def _draw_pictures(run: RunFolder, pictures: Pictures, reveal: bool) -> None:
    truth = pictures.truth
    first = Pictures(pictures.found[:MOST_FIGURE_PICTURES], None if truth is None else truth[:MOST_FIGURE_PICTURES])
    allowed = shown(first, reveal)
    if allowed.truth is None:
        draw_candidates(allowed.found, run.path / CANDIDATES)
    else:
        draw_pairs(allowed.truth, allowed.found, run.path / PAIRS)
