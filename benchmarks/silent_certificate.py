"""How often the silent-units attack is wrong about what it calls recovered, and how often it misses.

    python benchmarks/silent_certificate.py --data-dir DIR --problems 600 --seed 20000 --out FOLDER [--part 0/2]
    python benchmarks/silent_certificate.py --out FOLDER --summary
    python benchmarks/silent_certificate.py --data-dir DIR --only SEED

A seed is a problem: its state of the layer goes round STATES, and data, sizes, activation and recipe are drawn (see
`silent_data.py`, `silent_problems.py`). A line is printed and kept per problem; a run that was stopped goes on, and
parts can run side by side. `--only` runs one problem again and says of each wrong call what it is made of.

A call is wrong if it is farther than a tenth of a sample's norm from every sample. Intervals are Clopper-Pearson, 95 %:
over calls, and over problems, since calls of one problem are not independent.

About 2 s per problem on one core, 20 minutes for 600. Expect no wrong call, and calls in one problem of six.
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scipy.stats import binomtest
from silent_data import EMBEDDINGS, missing
from silent_problems import Problem, Source, made
from silent_scoring import CLOSE, Attacked, attack, called_of, distances
from trials import Trials

from exhume.errors import ExhumeError

SECONDS = 20.0
COUNTS = ("samples", "within", "called", "missed", "wrong", "blurred", "repeated")


def run(problem: Problem, source: Source) -> tuple[dict[str, Any], Attacked | None, torch.Tensor]:
    """What is kept of a problem: a refusal, or a score."""
    samples = torch.zeros(0)
    try:
        states, samples = made(problem, source)
        done = attack(states, samples, seed=problem.seed, budget_seconds=SECONDS)
    except ExhumeError as why:
        return {"refused": str(why)}, None, samples
    return done.score.numbers() | {"h": states.h, "d": states.d}, done, samples


def line(problem: Problem, found: dict[str, Any]) -> str:
    if "refused" in found:
        return f"{problem.describe()}: refused, {found['refused']}"
    fault = "WRONG: " if found["wrong"] else ""
    rank = "none" if found["rank"] is None else found["rank"]
    counts = ", ".join(f"{found[name]} {name}" for name in COUNTS[1:])
    return (
        f"{fault}{problem.describe()}, n {found['samples']}, d {found['d']}, h {found['h']}, rank {rank}: {counts}, "
        f"median {found['median']:.0e}, {found['seconds']:.1f} s"
    )


def explain(done: Attacked, samples: torch.Tensor) -> None:
    """Of each wrong call: its nearest sample, and the two samples whose combination is closest to it."""
    truth, called = samples.double(), called_of(done.found)
    for name in ("rank", "gap", "noise_explained", "decay", "chance", "expected_error"):
        print(f"  {name}: {done.found.facts.get(name)}")
    for index in called.nonzero()[:, 0].tolist():
        row = done.found.inputs[index].double()
        apart = distances(row[None], truth)[0]
        nearest = int(apart.argmin())
        if float(apart[nearest]) <= CLOSE:
            continue
        both = _pair(row, truth)
        print(
            f"  candidate {index}, norm {float(row.norm()):.3g}, confidence "
            f"{done.found.certificate.confidence[index]:.6f}: {float(apart[nearest]):.3f} from sample {nearest}; {both}"
        )


def _pair(row: torch.Tensor, truth: torch.Tensor) -> str:
    """The best combination a x_i + b x_j, its coefficients and what it leaves, of the row's norm."""
    best = (float("inf"), 0, 0, 0.0, 0.0)
    for i in range(len(truth)):
        for j in range(i):
            pair = truth[[i, j]].T
            a, b = torch.linalg.lstsq(pair, row[:, None]).solution[:, 0].tolist()
            left = float((pair @ torch.tensor([a, b], dtype=pair.dtype) - row).norm() / row.norm())
            best = min(best, (left, i, j, a, b))
    left, i, j, a, b = best
    return f"closest pair {a:.3f} x_{i} + {b:.3f} x_{j}, which leaves {left:.3f}"


def summarise(lines: list[tuple[Problem, dict[str, Any]]]) -> None:
    """Totals, and a table by state, by activation and by kind of data."""
    scored = [(problem, found) for problem, found in lines if "refused" not in found]
    total: Counter[str] = Counter()
    for _, found in scored:
        total.update({name: found[name] for name in COUNTS})
    asked = [found for _, found in scored if found["called"]]
    faulty = sum(bool(found["wrong"]) for found in asked)
    whole = sum(found["outcome"] == "recovered" for _, found in scored)
    print(f"\n{len(lines)} problems, {len(lines) - len(scored)} refused, {whole} recovered in full")
    print(f"{total['called']} called recovered, {total['wrong']} wrongly: {interval(total['wrong'], total['called'])}")
    print(f"{len(asked)} problems with calls, {faulty} with a wrong one: {interval(faulty, len(asked))}")
    print(
        f"{total['blurred']} calls farther than a tenth of a sample's distance from the mean; {total['repeated']} twice"
    )
    print(
        f"{total['samples']} samples, {total['within']} within a tenth of their norm, {total['missed']} of those not "
        f"called: {interval(total['missed'], total['within'])}"
    )
    seeds = [problem.seed for problem, found in scored if found["wrong"]]
    print(f"seeds with wrong calls: {', '.join(map(str, seeds)) or 'none'}")
    for title in ("state", "activation", "kind"):
        _table(title, scored)


def interval(count: int, of: int) -> str:
    """A share with its 95 % interval.

    >>> interval(0, 100)
    '0.00 % (0.00 to 3.62 %)'
    """
    if not of:
        return "none to judge by"
    bounds = binomtest(count, of).proportion_ci(0.95, "exact")
    return f"{100 * count / of:.2f} % ({100 * bounds.low:.2f} to {100 * bounds.high:.2f} %)"


def _table(title: str, scored: list[tuple[Problem, dict[str, Any]]]) -> None:
    print(f"\n| {title} | problems | samples | within 0.1 | called | not called though within | wrongly |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for value in sorted({str(getattr(problem, title)) for problem, _ in scored}):
        found = [found for problem, found in scored if str(getattr(problem, title)) == value]
        samples, within, called, missed, wrong = (sum(one[name] for one in found) for name in COUNTS[:5])
        upper = f" ({interval(wrong, called)})" if called else ""
        print(f"| {value} | {len(found)} | {samples} | {within} | {called} | {missed} | {wrong}{upper} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--problems", type=int, default=600)
    parser.add_argument("--seed", type=int, default=20000)
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2 are the two halves")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=int, help="one seed, not kept")
    parser.add_argument("--summary", action="store_true", help="of all parts in --out")
    parser.add_argument("--text-embeddings", type=Path, default=EMBEDDINGS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.summary:
        summarise([pair for path in sorted(options.out.glob("part-*.jsonl")) for pair in _kept(path)])
        return
    if options.data_dir is None:
        parser.error("expected --data-dir with CIFAR-10, found none")
    source = Source(options.data_dir, options.text_embeddings)
    if options.only is not None:
        problem = Problem.drawn(options.only)
        found, done, samples = run(problem, source)
        print(line(problem, found))
        if done is not None:
            explain(done, samples)
        return
    part, parts = map(int, options.part.split("/"))
    trials = Trials(options.out / f"part-{part}-of-{parts}.jsonl") if options.out else None
    began, lines, left_out = time.monotonic(), [], Counter[str]()
    for seed in range(options.seed + part, options.seed + options.problems, parts):
        problem = Problem.drawn(seed)
        why = missing(problem.kind, options.text_embeddings)
        if why is not None:
            left_out[why] += 1
            continue
        once = partial(_numbers, problem, source)
        found = trials(asdict(problem), once) if trials else once()
        lines.append((problem, found))
        print(line(problem, found), flush=True)
    summarise(lines)
    for why, many in left_out.items():
        print(f"{many} problems left out: {why}")
    print(f"{time.monotonic() - began:.0f} s")


def _numbers(problem: Problem, source: Source) -> dict[str, Any]:
    return run(problem, source)[0]


def _kept(path: Path) -> list[tuple[Problem, dict[str, Any]]]:
    return [(Problem(**json.loads(key)), found) for key, found in Trials(path).done.items()]


if __name__ == "__main__":
    main()
