"""Sentences of a page held against what is true of the victim.

A program finds only the kinds that are listed here; the sentences themselves are kept with each row, to be read.
"""

import re
from collections.abc import Iterator

from zoo.auditing import Result
from zoo.facts import Facts

_COUNTED = re.compile(r"^\w[\w ]*: ([\d,]+) of ([\d,]+) training \w+ can be read")
_CERTIFIED = re.compile(r"^\w[\w ]*: ([\d,]+) training \w+ can be read")
_RANK = re.compile(r"(?:spans only|change has rank|change spans) (\d+)")
_GAP = re.compile(r"largest gap of only ([\d.e+-]+)")
_MOVED = re.compile(r"features(?: of ([\w ]+))? moved by ([\d.e+-]+) of their size since the known start(?:: (\w+))?")
_STILL = re.compile(r"features of these records are what they were")
_HOLDS = re.compile(r"A last layer of .*?p = ([\d,]+) (?:parameters|independent equations, which) can hold (?!at most)")
_ATTACKED = re.compile(r"Attacked here by ([\w -]+)\.$")
STILL = 1e-6
_DENIALS = (
    "is not the training data",
    "are none of the",
    "with other data",
    "none of the",
    "cannot judge this training",
    "they are not the training data",
)


def false_sentences(informed: Result, blind: Result, facts: Facts) -> list[dict[str, str]]:
    """Each with the audit it is from and why it is false or misleading."""
    found = _of_verdict("with records", informed) + _of_verdict("without records", blind)
    if informed.severity is not None and blind.severity is not None and informed.severity < blind.severity:
        why = f"the gate is laxer with records than without: {blind.verdict} without them"
        found.append(_line("with records", str(informed.sentence), why))
    return found + _of_page("page", informed, facts) + _of_page("page without records", blind, facts)


def _line(where: str, sentence: str, why: str) -> dict[str, str]:
    return {"where": where, "sentence": sentence, "why": why}


def _of_verdict(where: str, result: Result) -> list[dict[str, str]]:
    if result.score is None or result.sentence is None or result.pieces is not None:
        return []
    said, true, found = result.sentence, result.score, []
    counted, certified = _COUNTED.match(said), _CERTIFIED.match(said)
    if counted and _number(counted[1]) != true.recovered:
        found.append(_line(where, said, f"{true.recovered} are within a tenth of their norm"))
    if certified and not counted and (true.wrong_calls or _number(certified[1]) > true.recovered):
        why = f"{true.wrong_calls} of {true.calls} calls are wrong, {true.recovered} records are there"
        found.append(_line(where, said, why))
    if "is exposed" in said and not true.recovered:
        found.append(_line(where, said, "no candidate is within a tenth of any record"))
    if true.recovered and any(denial in said for denial in _DENIALS):
        found.append(_line(where, said, f"{true.recovered} records are among the candidates"))
    return found


def _of_page(where: str, result: Result, facts: Facts) -> list[dict[str, str]]:
    ran = {line["method"] for line in result.attempts if line["outcome"] is not None}
    found = []
    for text in result.page:
        whys = [*_of_ranks(text, facts), *_of_counts(text, facts)]
        attacked = _ATTACKED.search(text)
        if attacked:
            whys += [f"{name} did not run" for name in attacked[1].split(" and ") if name not in ran]
            if text.startswith("The head:") and attacked[1] == "silent-units":
                whys.append("silent-units reads no head")
        found += [_line(where, text, why) for why in whys]
    return found


def _of_ranks(text: str, facts: Facts) -> Iterator[str]:
    """What is said of the first layer's change, weight decay taken off. Without its bias the rank may be one less."""
    if "average" in text or "weights put in" in text:  # other states of the layer: another matrix
        return
    rank, gap = _RANK.search(text), _GAP.search(text)
    if rank and facts.rank is None:
        yield f"there is no rank: the largest gap is {facts.gap:.1f}"
    if rank and facts.rank is not None and int(rank[1]) not in (facts.rank, facts.rank - 1):
        yield f"its rank is {facts.rank}, with a gap of {facts.gap:.0f}"
    if gap and facts.gap > 2 * float(gap[1]):
        yield f"the largest gap is {facts.gap:.0f}, at {facts.rank}"


def _of_counts(text: str, facts: Facts) -> Iterator[str]:
    """What is said of the features' way and of the number of equations."""
    moved, holds = _MOVED.search(text), _HOLDS.search(text)
    if _STILL.search(text) and facts.drift > STILL:
        yield f"those of the records moved by {facts.drift:.2f} of their size"
    ours = moved is not None and (moved[1] in (None, "these records") or moved[3] == "little")
    if moved and ours and facts.drift > 2 * float(moved[2]):
        yield f"those of the records moved by {facts.drift:.2f} of their size"
    if "The assumption holds" in text and facts.floor is None:
        yield f"{facts.n:,} records have as many features as there are weights: they explain any"
    if holds and _number(holds[1]) > 1.05 * facts.p:
        yield f"outputs that repeat each other count once: p = {facts.p:,}"


def _number(text: str) -> int:
    return int(text.replace(",", ""))
