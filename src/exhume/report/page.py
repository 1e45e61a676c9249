"""The report as one HTML file, made from its content alone: what is in report.json rebuilds the same page."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from exhume.experiments.run import RunFolder
from exhume.files import write_json, write_text
from exhume.report.charts import ZONE_NAMES, gauge_chart, loss_chart
from exhume.report.content import describe, gather, shown, without_pictures
from exhume.report.evidence import Pictures
from exhume.report.figures import draw_candidates, draw_pairs, draw_trace
from exhume.report.numbers import is_plain, percent, plain, split_power
from exhume.theory import ZONE_TITLES

MOST_FIGURE_PICTURES = 100


def write_report(run: RunFolder, reveal: bool, factory: str | None = None) -> Path:
    """Writes report.json, report.html and the figures into the run folder; returns the page.

    Without `reveal` no file that is written here holds a sharp picture, the figures included. `factory` names code of
    the user's own that may run to make the features.
    """
    found, observation, summary = run.reconstruction(), run.observation(factory), run.summary()
    evidence = gather(run, found, observation, summary)
    content = describe(run, evidence, found, observation, summary, reveal)
    if evidence.pictures is not None:
        _draw_pictures(run, evidence.pictures, reveal)
    trace = run.trace()
    if trace:
        draw_trace(trace, run.path / "trace.png", found.held_out_loss)
    write_json(run.path / "report.json", content)
    write_text(run.report, render(content))
    return run.report


def render(content: dict[str, Any]) -> str:
    """The page. Every text of the content is escaped; the script is fixed and the page allows no other."""
    environment = Environment(
        loader=PackageLoader("exhume", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": percent, "plain": plain, "power": power}
    script = environment.get_template("page.js.jinja").render()
    return environment.get_template("page.html.jinja").render(
        report=content,
        gauge_chart=gauge_chart(content["gauge"]),
        loss_chart=loss_chart(content["trace"], content["attack"]["held_out_loss"]),
        zones=[{"zone": zone, "name": name, "title": ZONE_TITLES[zone]} for zone, name in ZONE_NAMES],
        style=Markup(environment.get_template("page.css.jinja").render()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        json_base64=base64.b64encode(json.dumps(without_pictures(content), indent=2).encode()).decode(),
    )


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


def power(exponent: int) -> Markup:
    return Markup("10<sup>{}</sup>").format(str(exponent).replace("-", "\u2212"))


def _draw_pictures(run: RunFolder, pictures: Pictures, reveal: bool) -> None:
    truth = pictures.truth
    first = Pictures(pictures.found[:MOST_FIGURE_PICTURES], None if truth is None else truth[:MOST_FIGURE_PICTURES])
    allowed = shown(first, reveal)
    if allowed.truth is None:
        draw_candidates(allowed.found, run.path / "candidates.png")
    else:
        draw_pairs(allowed.truth, allowed.found, run.path / "pairs.png")
