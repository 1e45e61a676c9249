"""The pages, from templates of this package. Every text is escaped; scripts and styles are files of their own."""

from dataclasses import asdict
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from exhume.report.charts import gauge_chart
from exhume.report.numbers import plain
from exhume.theory import ZONE_TITLES, Gauge
from exhume.verdicts import Verdict
from exhume.version import VERSION

PAPER = "report/page.css.jinja"
"""The style of reports, on which that of these pages is built: one look for both."""


def render(template: str, **values: Any) -> str:
    return _environment().get_template(f"serving/{template}").render(version=VERSION, **values)


def gauge_drawing(gauge: Gauge) -> str:
    """The drawing that the report has of these sizes. Numbers alone go into it."""
    shown = asdict(gauge) | {"zone_title": ZONE_TITLES[gauge.zone]}
    macros: Any = _environment().get_template("report/gauge.html.jinja").module
    return str(macros.drawing_of(shown, gauge_chart(shown)))


@cache
def style() -> str:
    environment = _environment()
    return environment.get_template(PAPER).render() + environment.get_template("serving/page.css.jinja").render()


@cache
def script() -> str:
    return _environment().get_template("serving/page.js.jinja").render()


def shown(value: Any) -> str:
    """A value of a summary for people.

    >>> shown(None), shown("not_recovered"), shown(12345), shown(0.25), shown("split-newton")
    ('\u2013', 'Not recovered by these attacks', '12,345', '0.25', 'split-newton')
    """
    if value is None:
        return "\u2013"
    if isinstance(value, str):
        titles = {verdict.value: verdict.title for verdict in Verdict}
        return titles.get(value, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.1e}" if value and abs(value) < 1e-3 else plain(value)
    return str(value)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("exhume", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "plain": plain}
    return environment
