"""Rows as Markdown: the table of results, what pages say, and the facts."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from exhume.report.verdict import OPEN
from zoo.auditing import Result
from zoo.rows import Row

RESULTS = (
    "victim", "model, data, recipe", "the attacker knows", "attack", "recovered", "median error", "worst", "control",
    "calls (wrong)", "seconds", "verdict",
)  # fmt: skip
SHORT = ("victim", "the attacker knows", "recovered", "median error", "verdict")
LONG = ("victim", "attack", "worst", "control", "calls (wrong)", "seconds")
FACTS = (
    "victim", "n", "d", "first layer", "rank", "gap", "silent", "floor, halfway", "floor, end", "p/(dn)", "drift",
)  # fmt: skip
FIRST_LAYER = ("victim", "n", "d", "first layer", "rank", "gap", "silent")
HEAD = ("victim", "floor, halfway", "floor, end", "p/(dn)", "drift")
BUDGET = 15.0
"""Seconds for the attacks of an audit, where a victim has no budget of its own."""
OPENING = """# Real models

What comes back from models as people train them: plain PyTorch, default layers with bias, raw or standardised data,
usual recipes. Nothing in their training comes from exhume, and no recipe was changed to suit an attack. The scripts are
in `benchmarks/zoo/`. This page is generated:

    python benchmarks/zoo.py --out OUT --data-dir DIR --page docs/real-models.md{option}

Each victim is audited as a new user would: `exhume.audit(model, initial=..., truth=..., control=...)`, with
{budget:.0f} s of one core for all attacks together{own}.
The number of samples is not told unless the table says so, and the records are used for scoring only. All seconds are
those of a core, so that it does not matter what else the machine does.

## What came back
![Share of the records that came back from each model](images/real-models.png)

A record is *recovered* if a candidate, matched one to one, is closer than a tenth of the record's own norm and closer
than its nearest control record. An error is a share of the record's own norm. Candidates that are farther away than
that norm count as 1. A row with 0 says that these attacks, in this time, found nothing. A better attack may find more.
"""
TRAINED = """
## How each was trained
"""
DETAIL = """
## In detail
*Worst* is the largest error. *Control* counts records that were not trained on, in the same way. A *call* is a
candidate that the certificate trusts. It is wrong if training saw no input within a tenth of it. *Seconds* are those of
the whole audit.
"""
SENTENCES = """
## What the audit says
The verdict of each page without the records, as an attacker would get it:
"""
WITH_RECORDS = """
With the records at hand:
"""
VERDICTS = ("verdict", "models", "which")
TRUE = """
## What is true of each victim
Measured from the true start and the records, beside the audit (`--facts`), to show where the obstacle is.

- *Rank* and *gap*: where the singular values of the first layer's change fall most steeply. Plain gradient descent on n
  inputs leaves rank n.
- *Silent*: pairs of a unit and a record that are silent at both ends of training.
- *Floor*: the share of the head's change that the features of the true records leave unexplained, halfway between both
  ends and at the end. It is "any" where there are as many records as features, which explain any change.
- *p/(dn)*: equations of the last layer over unknowns. Outputs that repeat each other are counted once.
- *Drift*: how far the features of the records moved, over their size.
"""


def page(rows: Sequence[Row], missing: Sequence[str] = ()) -> str:
    """`missing` are victims without a row."""
    lines = [_results_line(same) for same in by_victim(rows)]
    parts = [_opening(rows), chosen(SHORT, RESULTS, lines)]
    parts += [f"\nNot measured in this run: {', '.join(missing)}."] if missing else []
    parts += [TRAINED, chosen(("victim", "model, data, recipe"), RESULTS, lines), DETAIL, chosen(LONG, RESULTS, lines)]
    facts = [_facts_line(same[0]) for same in by_victim(rows)]
    parts += [SENTENCES, verdicts_table(rows, records=False), WITH_RECORDS, verdicts_table(rows, records=True)]
    parts += [TRUE, chosen(FIRST_LAYER, FACTS, facts), "", chosen(HEAD, FACTS, facts)]
    return "\n".join(parts) + "\n"


def _opening(rows: Sequence[Row]) -> str:
    """With the budget that most have, and that of the others."""
    budgets = {same[0].victim: same[0].budget for same in by_victim(rows)}
    common = BUDGET if BUDGET in budgets.values() else min(budgets.values())
    others = [f"{budget:,.0f} s for {name}" for name, budget in budgets.items() if budget != common]
    own = f" ({', '.join(others)})" if others else ""
    return OPENING.format(budget=common, own=own, option="" if common == BUDGET else f" --budget {common:.0f}")


def chosen(wanted: Sequence[str], columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of some of the columns: one of all of them is too wide to read."""
    places = [columns.index(name) for name in wanted]
    return table(wanted, [[line[place] for place in places] for line in lines])


def results_table(rows: Sequence[Row]) -> str:
    return table(RESULTS, [_results_line(same) for same in by_victim(rows)])


def said_list(rows: Sequence[Row], records: bool) -> str:
    """Each sentence once, with the victims that it is said of."""
    said: dict[str, list[str]] = {}
    for same in by_victim(rows):
        sentence = _said(same[0].with_records if records else same[0].without_records)
        said.setdefault(sentence, []).append(same[0].victim)
    return "\n".join(f"- {sentence} *{', '.join(victims)}*" for sentence, victims in said.items())


def verdicts_table(rows: Sequence[Row], records: bool) -> str:
    """Each verdict once, with its victims; what is inconclusive by its reason, the most frequent one first."""
    ruled: dict[tuple[int, str], list[str]] = {}
    for same in by_victim(rows):
        result = same[0].with_records if records else same[0].without_records
        severity = -1 if result is None or result.severity is None else result.severity
        ruled.setdefault((-severity, verdict_of(result)), []).append(same[0].victim)
    ordered = sorted(ruled.items(), key=lambda item: (item[0][0], -len(item[1])))
    return table(VERDICTS, [(words, str(len(victims)), ", ".join(victims)) for (_, words), victims in ordered])


def verdict_of(result: Result | None) -> str:
    """In a few words, without the numbers of one victim.

    >>> said = f"Inconclusive: {OPEN}. 26 % of the weights is no combination of these records' features. Either"
    >>> verdict_of(Result(1.0, verdict="inconclusive", sentence=said))
    "inconclusive: a part of the weights is no combination of these records' features"
    >>> verdict_of(Result(1.0, verdict="recovered", sentence="Recovered: 8 of 8 training samples can be read."))
    'recovered'
    """
    if result is None or result.error is not None or result.sentence is None:
        return _said(result)
    words, (_, found, reason) = str(result.verdict).replace("_", " "), result.sentence.partition(f"{OPEN}. ")
    if not found:
        return words
    first = re.split(r"\. |\.$", re.sub(r"^[\d.]+ %", "a part", reason))[0]
    return f"{words}: {first[:1].lower()}{first[1:]}"


def facts_table(rows: Sequence[Row]) -> str:
    return table(FACTS, [_facts_line(same[0]) for same in by_victim(rows)])


def false_list(rows: Sequence[Row]) -> str:
    lines = [(row.victim, told["where"], told["sentence"], told["why"]) for row in rows for told in row.false]
    return table(("victim", "where", "sentence", "why it is false"), lines) if lines else "none that a program can tell"


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *escaped])


def by_victim(rows: Sequence[Row]) -> list[list[Row]]:
    """In the order in which they come; the seeds of a victim together."""
    return [list(same) for _, same in groupby(rows, key=lambda row: row.victim)]


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """One number, or the least and the largest of several.

    >>> spread([3.0], "{:.0f}".format), spread([3.0, 5.0, 4.0], "{:.0f}".format), spread([], str)
    ('3', '3 to 5', '-')
    """
    if not values:
        return "-"
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def _results_line(same: Sequence[Row]) -> tuple[str, ...]:
    told = [row.with_records for row in same if row.with_records is not None]
    scores = [result.score for result in told if result.score is not None]
    recovered = f"{spread([score.recovered for score in scores], '{:.0f}'.format)} of {same[0].n:,}"
    known = [score.recognised for score in scores if score.recognised is not None]
    if known:
        recovered += f" ({spread(known, '{:.0f}'.format)} by SSIM)"
    pieces = sorted({result.pieces for result in told if result.pieces})
    if pieces:
        recovered += f" (by {', '.join(pieces)})"
    calls, wrong = [score.calls for score in scores], [score.wrong_calls for score in scores]
    return (
        same[0].victim,
        same[0].what,
        same[0].knows,
        _words(result.attack or "none" for result in told),
        recovered if scores else f"0 of {same[0].n:,}",
        spread([score.median for score in scores], "{:.1g}".format),
        spread([score.worst for score in scores], "{:.1g}".format),
        spread([score.control for score in scores], "{:.0f}".format),
        f"{spread(calls, '{:.0f}'.format)} ({spread(wrong, '{:.0f}'.format)})" if scores else "-",
        spread([result.seconds for result in told], "{:.0f}".format),
        _words((result.verdict or "error").replace("_", " ") for result in told),
    )


def _words(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _said(result: Result | None) -> str:
    if result is None:
        return "-"
    return f"error: {result.error}" if result.error is not None else str(result.sentence)


def _facts_line(row: Row) -> tuple[str, ...]:
    facts = row.facts
    return (
        row.victim,
        f"{facts.n:,}",
        f"{facts.d:,}",
        facts.first,
        "none" if facts.rank is None else f"{facts.rank:,}",
        f"{facts.gap:.2g}",
        "-" if facts.silent is None else f"{facts.silent:.2f}",
        "any" if facts.floor is None else f"{facts.floor:.1e}",
        "any" if facts.floor_at_end is None else f"{facts.floor_at_end:.1e}",
        f"{facts.ratio:.2g}",
        f"{facts.drift:.2g}",
    )
