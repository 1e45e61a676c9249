"""Can the certificate be fooled? Problems made outside exhume's generators, attacked through its public interface.

    python benchmarks/fooling.py --out OUT [--seeds 0:20] [--families "A;B"] [--seconds 20] [--part 0/1]
    python benchmarks/fooling.py --out OUT --judge NEW # the same candidates, judged anew by the code as it is
    python benchmarks/fooling.py --out OUT --table     # of what is there

`OUT` keeps what each attack found. Where an attack's time ran out, its candidates are judged again without a limit:
what counts is the certificate, and not the clock. All seconds are seconds of computing.

A call (confidence from 1/2) is wrong where the candidate is farther from every sample than 0.1 of that sample's norm.
Signs are free where the activation is odd and there is no bias, norms where it is homogeneous and there is none. A
sample that a candidate is as close to, but none that is called, was missed. Of these, `open` are not called either
where the certificate is handed all true samples as candidates: the weights leave them open, and it is right to miss
them. `rest` is the share of all others. Even seeds are to design rules with; odd ones are kept back until the rules are
fixed.
"""

import argparse
import json
import math
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import fooling_networks  # noqa: F401  its families add themselves
import numpy as np
import torch
from fooling_problems import FAMILIES, Fooling
from scipy.stats import beta

import exhume
from exhume.activations import activation as named
from exhume.attacks.foundation.judgement import Resources
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.tangent.case import TangentCase
from exhume.attacks.tangent.newton import NtkAttack
from exhume.errors import ExhumeError
from exhume.observation import Knowledge, Observation
from exhume.reconstruction import Certificate

Line = dict[str, Any]
NEAR = 0.1
ENDED = 0.95  # of the budget: an attack that took less ended by itself


def count_computing() -> None:
    """Budgets count what this process computes, so that an attack on a busy machine has as fair a chance as on an idle
    one: the clocks and the timer of `exhume.alarm` and of attacks are those of the process."""
    time.monotonic = time.process_time
    signal.ITIMER_REAL, signal.SIGALRM = signal.ITIMER_PROF, signal.SIGPROF  # type: ignore[misc]


def problem_of(family: str, seed: int, data_dir: Path) -> Fooling:
    stream = np.random.default_rng([seed, crc32(family.encode())])
    return FAMILIES[family].make(stream, data_dir)


def observed(problem: Fooling) -> Observation:
    if problem.made is not None:
        return problem.made
    return exhume.observe_features(
        torch.tensor(problem.rows, dtype=torch.float32),
        torch.tensor(problem.weights, dtype=torch.float32),
        problem.activation,
        None if problem.bias is None else torch.tensor(problem.bias, dtype=torch.float32),
        Knowledge(norm=problem.norm),
        problem.trained,
    )


def errors(problem: Fooling, candidates: np.ndarray) -> np.ndarray:
    """The distance of each candidate to its nearest sample, over the norm of that sample."""
    phi, samples = named(problem.activation), problem.samples
    norms = np.linalg.norm(samples, axis=1)
    if phi.homogeneous and problem.bias is None:
        sizes = np.maximum(np.linalg.norm(candidates, axis=1, keepdims=True), 1e-30)
        candidates, samples = candidates / sizes, samples / norms[:, None]
        norms = np.ones(len(norms))
    signs = (1, -1) if phi.parity != "none" and problem.bias is None else (1,)
    away = [np.linalg.norm(candidates[:, None] - sign * samples[None], axis=2) / norms for sign in signs]
    return np.min(away, axis=0)


def attack(family: str, seed: int, options: argparse.Namespace) -> Line:
    problem = problem_of(family, seed, options.data_dir)
    began = time.monotonic()
    try:
        found = exhume.reconstruct(
            observed(problem), method=problem.method, samples=problem.told, budget=options.seconds
        )
    except ExhumeError as refusal:
        ended: Line = {"refused": str(refusal)}
    else:
        ended = {
            "outcome": found.outcome.value,
            "candidates": found.candidates.double().numpy().tolist(),
            "confidence": list(found.certificate.confidence),
            "loss": found.loss,
            "held_out_loss": found.held_out_loss,
        }
    seconds = time.monotonic() - began
    return {"family": family, "seed": seed, "seconds": seconds, "budget": options.seconds, **ended}


def in_time(line: Line) -> bool:
    return bool(line["seconds"] < ENDED * line["budget"])


def certificate(problem: Fooling, candidates: np.ndarray) -> Certificate:
    """Of any candidates, by today's code."""
    resources = Resources(None, torch.float32, torch.float32, torch.device("cpu"))
    observation, rows = observed(problem), torch.tensor(candidates, dtype=torch.float32)
    observation = replace(observation, knowledge=replace(observation.knowledge, samples=problem.told))
    method = NtkAttack() if problem.method == "ntk" else SplitNewton() if problem.made is None else ModuleNewton()
    case = method.open_case(observation, 0, 0.05, resources)
    if isinstance(case, TangentCase) and case.subspace is not None:
        rows = rows @ case.subspace.basis.to(rows)
    judged: Certificate = case.judge(rows.double() if problem.method == "ntk" else rows).certificate
    return judged


def judged_again(line: Line, data_dir: Path) -> Line:
    """The certificate of stored candidates, by today's code."""
    if "refused" in line:
        return line
    began = time.monotonic()
    try:
        judged = certificate(problem_of(line["family"], line["seed"], data_dir), np.asarray(line["candidates"]))
    except ExhumeError as refusal:
        return {**line, "refused": str(refusal)}
    return {
        **line,
        "outcome": judged.outcome.value,
        "confidence": list(judged.confidence),
        "held_out_loss": judged.held_out_loss,
        "judged_in": time.monotonic() - began,
    }


def scored(line: Line, data_dir: Path) -> Line:
    """With what of it is right: counts of calls, wrong calls, and right candidates that were not called."""
    if "refused" in line:
        return {**line, "called": 0, "wrong": 0, "near": 0, "missed": 0, "open": 0, "error": []}
    problem = problem_of(line["family"], line["seed"], data_dir)
    away = errors(problem, np.asarray(line["candidates"]))
    called, near = np.asarray(line["confidence"]) >= 0.5, away.min(axis=1) <= NEAR
    found, trusted = (away <= NEAR).any(axis=0), (away[called] <= NEAR).any(axis=0)
    missed, left_open = int((found & ~trusted).sum()), 0
    if missed:
        sure = np.asarray(certificate(problem, problem.samples).confidence) >= 0.5
        left_open = int((found & ~trusted & ~sure).sum())
    return {
        **line,
        "called": int(called.sum()),
        "wrong": int((called & ~near).sum()),
        "near": int(found.sum()),
        "missed": missed,
        "open": left_open,
        "samples": len(problem.samples),
        "error": away.min(axis=1).tolist(),
    }


def table(lines: list[Line]) -> None:
    print(f"{'family':40} problems samples  found  called  wrong  missed       open rest false outcomes")
    for name, those in [(name, [line for line in lines if line["family"] == name]) for name in FAMILIES]:
        if those:
            print(_row(name + (" *" if FAMILIES[name].ordinary else ""), those))
    ordinary = [line for line in lines if FAMILIES[line["family"]].ordinary]
    for name, those in (("all", lines), ("ordinary (*)", ordinary)):
        ended = [line for line in those if in_time(line)]
        full = [line for line in those if line["near"] == line.get("samples") == len(line.get("confidence", ()))]
        print(_row(name, those), _row(f"{name}: ended in time", ended), _row(f"{name}: all found", full), sep="\n")
    calls, wrong = sum(line["called"] for line in lines), sum(line["wrong"] for line in lines)
    fooled = sum(line["wrong"] > 0 for line in lines)
    for what, count, of in (("calls", wrong, calls), ("problems", fooled, len(lines))):
        low = 0.0 if count == 0 else beta.ppf(0.025, count, of - count + 1)
        high = beta.ppf(0.975, count + 1, of - count) if of > count else 1.0
        print(f"wrong {what}: {count} of {of}, 95 % interval {low:.2%} to {high:.2%}")


def _row(name: str, lines: list[Line]) -> str:
    sums = {key: sum(line[key] for line in lines) for key in ("near", "called", "wrong", "missed", "open")}
    false = sum(
        line.get("outcome") == "recovered" and (line["wrong"] or line["near"] < line["samples"]) for line in lines
    )
    samples = sum(line.get("samples", 0) for line in lines)
    missed, left_open, found = sums["missed"], sums["open"], sums["near"]
    shares = [
        f"{part / of:4.0%}" if of else "   -" for part, of in ((missed, found), (missed - left_open, found - left_open))
    ]
    counts = f"{found:6} {sums['called']:7} {sums['wrong']:6} {missed:7} {shares[0]} {left_open:5} {shares[1]}"
    return f"{name:40} {len(lines):8} {samples:7} {counts} {false:15}"


def read(out: Path) -> dict[tuple[str, int], Line]:
    lines: dict[tuple[str, int], Line] = {}
    for path in sorted(out.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            lines[line["family"], line["seed"]] = line
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0:20", help="first:stop or first:stop:step")
    parser.add_argument("--families", help="separated by semicolons; all of them otherwise")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds; what is missing is made next time")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--judge", type=Path, help="the folder for what is judged anew")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    count_computing()
    seeds = range(*(int(number) for number in options.seeds.split(":")))
    names = options.families.split(";") if options.families else list(FAMILIES)
    part, parts = (int(number) for number in options.part.split("/"))
    wanted = [(name, seed) for seed in seeds for name in names][part::parts]
    attacked = read(options.out)
    known = attacked if options.judge is None else read(options.judge)
    began = time.monotonic()
    if not options.table:
        folder = options.judge or options.out
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"part-{part}-of-{parts}.jsonl").open("a") as file:
            for key in wanted:
                late = time.monotonic() - began > options.stop_after
                if late or key in known or (options.judge is not None and key not in attacked):
                    continue
                line = attack(*key, options) if options.judge is None else attacked[key]
                if options.judge is not None or not in_time(line):
                    line = judged_again(line, options.data_dir)
                known[key] = scored(line, options.data_dir)
                file.write(json.dumps(known[key]) + "\n")
                file.flush()
    lines = [known[key] for key in wanted if key in known]
    for line in lines:
        if line["wrong"]:
            off = [f"{e:.2g}" for e, c in zip(line["error"], line["confidence"], strict=True) if c >= 0.5 and e > NEAR]
            print("wrong:", line["family"], line["seed"], line["outcome"], "errors", *off, flush=True)
    table(lines)


if __name__ == "__main__":
    main()
