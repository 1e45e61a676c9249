"""Is --memory obeyed? Attacks on random features whose V is smaller and larger than the budget, and their peaks; one of
them to its end, because candidates grow on the way; and one on a Vision Transformer.

    python soak/memory.py --json memory.json

The peak is what the system counted for the whole process (VmHWM, ru_maxrss): Python, torch and the libraries count.
A budget that is too small has to be refused before the attack begins, with one that is enough, which is then tried.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcome import finish

TOLERATED = 1.10
BUDGETS = ("1G", "2G")
SIZES = {"1G": 2**30, "2G": 2**31}
SMALL_MB = 100
"""What needs little of one budget says nothing about a larger one."""


@dataclass(frozen=True)
class Victim:
    """Random features: p rows of V in d dimensions, trained on so many samples."""

    params: int
    dim: int
    samples: int

    @property
    def megabytes(self) -> float:
        return 4 * self.params * self.dim / 2**20


VICTIMS = (Victim(200_000, 500, 40), Victim(450_000, 600, 10), Victim(60_000, 300, 150))
HEAVY = ("--method", "heavy-ball", "--iterations", "1")
SPLIT = ("--method", "split-newton", "--iterations", "5")
TO_ITS_END = Victim(9_000, 100, 30)
NETWORK = Victim(6_250, 625, 40)  # its features, and the pixels of a face


@dataclass(frozen=True)
class Measured:
    """One attack: the peak of its process against its budget, in MiB."""

    victim: str
    features_mb: float
    method: str
    told: bool
    budget_mb: float
    peak_mb: float
    exit_code: int
    said: str

    @property
    def share(self) -> float:
        return self.peak_mb / self.budget_mb

    @property
    def obeyed(self) -> bool:
        return self.exit_code == 0 and self.share <= TOLERATED


@dataclass(frozen=True)
class Refusal:
    """A budget that is too small: whether it was refused, in which words, and what the budget that it named came to."""

    victim: str
    method: str
    exit_code: int
    said: str
    seconds: float
    then: Measured | None

    @property
    def kept(self) -> bool:
        return self.exit_code == 2 and self.then is not None and self.then.obeyed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exhume-memory-") as name:
        measured, refusals = everything(Path(name))
    result = summary(measured, refusals, time.monotonic() - began)
    line = f"{result['runs']} attacks: the largest peak is {result['largest_share']:.0%} of its budget"
    return finish(result, asked.json, line)


def summary(measured: Sequence[Measured], refusals: Sequence[Refusal], seconds: float) -> dict[str, Any]:
    broken = [line for line in measured if not line.obeyed]
    faults = [
        f"{line.victim}, {line.method}: {line.peak_mb:.0f} MiB of {line.budget_mb:.0f}, {line.said}" for line in broken
    ]
    faults += [
        f"{line.victim}, {line.method}: not refused as promised: {line.said}" for line in refusals if not line.kept
    ]
    shares = [line.share for line in measured] + [line.then.share for line in refusals if line.then is not None]
    return {
        "runs": len(measured),
        "refusals": len(refusals),
        "largest_share": round(max(shares), 3),
        "faults": faults,
        "measured": [asdict(line) for line in measured],
        "refused": [asdict(line) for line in refusals],
        "seconds": round(seconds, 1),
    }


def everything(place: Path) -> tuple[list[Measured], list[Refusal]]:
    measured, refusals = [], []
    for victim in VICTIMS:
        run, told = place / str(victim.params), ("--samples", str(victim.samples))
        shape = ("--dim", victim.dim, "--samples", victim.samples, "--params", victim.params)
        _exhume("train", "rf", "--data", "sphere", *shape, "--seed", 0, "--out", run)
        for budget in BUDGETS[: 2 if victim.megabytes > SMALL_MB else 1]:
            for options in (HEAVY, SPLIT, (*SPLIT, *told)):
                measured.append(measure(victim, run, options, budget))
                print(_line(measured[-1]), flush=True)
    for options in (HEAVY, (*SPLIT, *told)):
        refusals.append(refused(victim, run, options))
        print(f"refused: {refusals[-1].said}", flush=True)
    measured.append(to_its_end(place / "end"))
    print(_line(measured[-1]), flush=True)
    for recipe in (False, True):
        measured.append(audited(place / "states", recipe))
        print(_line(measured[-1]), flush=True)
    refusals.append(refused_network(place / "network"))
    print(f"refused: {refusals[-1].said}", flush=True)
    return measured, refusals


def to_its_end(run: Path) -> Measured:
    victim = TO_ITS_END
    shape = ("--dim", victim.dim, "--samples", victim.samples, "--params", victim.params)
    _exhume("train", "rf", "--data", "sphere", *shape, "--seed", 0, "--out", run)
    return measure(victim, run, ("--method", "split-newton"), "500M")


def audited(folder: Path, recipe: bool) -> Measured:
    """Silent units, or replay, on a ReLU network of 3072-1000-10 that saw 100 records."""
    if not folder.exists():
        write_states(folder)
    states = (folder / "after.safetensors", "--initial", folder / "before.safetensors", "--samples", 100)
    told = ("--model", "soak_networks:wide", "--recipe-file", folder / "recipe.json") if recipe else ()
    out = folder / ("replayed" if recipe else "silent")
    code, peak, said = _exhume("audit", *states, *told, "--memory", "1G", "--budget", "3m", "--out", out, check=False)
    name = "audit with replay" if recipe else "audit with silent-units"
    return Measured("3072-1000-10, n = 100", 12, name, True, 1024.0, round(peak / 2**20, 1), code, said)


def write_states(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from soak_networks import wide

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = wide(), torch.randn(100, 3072)
    labels = torch.arange(100) % 10
    folder.mkdir()
    save_file(model.state_dict(), folder / "before.safetensors")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    save_file(model.state_dict(), folder / "after.safetensors")
    recipe = {"optimiser": "sgd", "rate": 0.02, "steps": 30, "labels": labels.tolist()}
    (folder / "recipe.json").write_text(json.dumps(recipe))


def refused_network(run: Path) -> Refusal:
    victim = NETWORK
    _exhume("train", "vit", "--data", "faces", "--samples", victim.samples, "--patch", 5, "--ratio", 0.25, "--steps", 2,
            "--out", run)  # fmt: skip
    return refused(victim, run, ("--method", "module-newton", "--iterations", "2", "--samples", str(victim.samples)))


def measure(victim: Victim, run: Path, options: Sequence[str], budget: str) -> Measured:
    code, peak, said = _exhume("attack", run, *options, "--memory", budget, check=False)
    size = SIZES[budget] if budget in SIZES else int(budget.rstrip("M")) * 2**20
    name = f"p = {victim.params:,}, d = {victim.dim}, n = {victim.samples}"
    told = options[1] == "heavy-ball" or "--samples" in options
    return Measured(name, round(victim.megabytes), options[1], told, size / 2**20, round(peak / 2**20, 1), code, said)


def refused(victim: Victim, run: Path, options: Sequence[str]) -> Refusal:
    began = time.monotonic()
    code, _, said = _exhume("attack", run, *options, "--memory", "410M", check=False)
    seconds = round(time.monotonic() - began, 1)
    would = re.search(r"give --memory (\d+M)", said)
    then = None if would is None else measure(victim, run, options, would[1])
    return Refusal(
        f"p = {victim.params:,}, d = {victim.dim}, n = {victim.samples}", options[1], code, said, seconds, then
    )


def _exhume(*arguments: object, check: bool = True) -> tuple[int, int, str]:
    """Exit code, peak memory in bytes, and the last line on standard error."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "exhume", *map(str, arguments)]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        words.seek(0)
        lines = words.read().decode(errors="replace").splitlines()
    said = lines[-1] if lines else ""
    if check and code != 0:
        raise RuntimeError(f"{' '.join(command)}: {said}")
    return code, used.ru_maxrss * 1024, said


def _line(line: Measured) -> str:
    told = "told n" if line.told else "not told"
    return (
        f"{line.victim}: V {line.features_mb:.0f} MiB, {line.method} ({told}), budget {line.budget_mb:.0f} MiB: "
        f"peak {line.peak_mb:.0f} MiB, {line.share:.0%} {line.said}"
    )


if __name__ == "__main__":
    sys.exit(main())
