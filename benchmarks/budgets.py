"""Is `--budget` kept? Commands that would take far longer, each with its budget, its actual time and how it ended.

    python benchmarks/budgets.py --budget 20s --json budgets.json

The time is that of the whole process, from its start to its exit: libraries, files, attack, verdict, report. What is
promised is at most 3 s more than the budget on a machine that has a core free for it; `waiting` is the share of the
time in which the process wanted a core and had none (where the system tells).
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from exhume.units import parse_duration

PROMISED = 3.0


@dataclass(frozen=True)
class Kept:
    """One command. `seconds` on the wall, of which it had a core for `computed` and waited for one for `waited`."""

    name: str
    budget: float
    seconds: float
    computed: float
    waited: float
    exit_code: int
    said: str

    @property
    def over(self) -> float:
        return self.seconds - self.budget

    def line(self) -> str:
        ended = "kept" if self.over <= PROMISED else "NOT KEPT"
        return (
            f"| {self.name} | {self.budget:.0f} | {self.seconds:.1f} | {self.over:+.1f} | {self.computed:.1f} | "
            f"{self.waited:.1f} | {ended} | {self.said} |"
        )


HEADER = "| command | budget, s | took, s | over | computed, s | waited, s | | ended |\n" + "| --- " * 8 + "|"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", action="append", help="e.g. 20s; may be repeated")
    parser.add_argument("--only", default="", help="commands whose name has this in it")
    parser.add_argument("--victims", type=Path, help="a folder for the victims, which are kept")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exhume-budgets-") as name:
        place = Path(name)
        store = asked.victims or place
        store.mkdir(parents=True, exist_ok=True)
        print(HEADER)
        done: list[Kept] = []
        for title, words in commands(store, asked.only):
            for budget in asked.budget or ["20s"]:
                out = ["--out", place / f"out{len(done)}"] if words[0] == "audit" else []
                done.append(measured(title, [*words, *out, "--budget", budget], parse_duration(budget)))
                print(done[-1].line(), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(line) | {"over": line.over} for line in done], indent=2) + "\n")
    return int(any(line.over > PROMISED for line in done))


def commands(store: Path, only: str) -> list[tuple[str, list[object]]]:
    """Each makes its victim first, if it is not there."""
    large = ("rf", "--data", "sphere", "--dim", 3000, "--samples", 60, "--params", 180_000)
    pictures = ("rf", "--data", "faces", "--samples", 60, "--params", 12_000)
    layers = ("two-layer", "--data", "sphere", "--dim", 400, "--samples", 30, "--width", 12_000, "--steps", 20)
    table = ("two-layer", "--data", "sphere", "--dim", 60, "--samples", 60, "--width", 8_000, "--steps", 20)
    network = ("vit", "--data", "faces", "--samples", 40, "--patch", 5, "--ratio", 0.25, "--steps", 2)
    on_runs = [
        ("split-newton, p = 180,000, d = 3,000", large, ("--method", "split-newton")),
        ("heavy-ball, p = 180,000, d = 3,000", large, ("--method", "heavy-ball", "--samples", 60)),
        ("informed, p = 180,000, d = 3,000", large, ("--method", "informed")),
        ("subspace from moments, p = 180,000, d = 3,000", large, ("--subspace", "moments")),
        ("image-prior, faces", pictures, ("--method", "image-prior")),
        ("a pool of 3, faces", pictures, ("--method", "split-newton", "--pool", 3)),
        ("subspace from the first layer, h = 12,000", (*layers, "--knows-first-layer"), ("--subspace", "first-layer")),
        ("ntk, h = 12,000", (*layers, "--knows-first-layer"), ("--method", "ntk")),
        ("kkt, h = 12,000", layers, ("--method", "kkt")),
        ("firing-patterns, h = 8,000", (*table, "--knows-first-layer"), ("--method", "firing-patterns")),
        ("rewind, h = 8,000", table, ("--method", "rewind")),
        ("module-newton, a Vision Transformer", network, ("--method", "module-newton")),
    ]
    found: list[tuple[str, list[object]]] = []
    for title, victim, options in on_runs:
        if only in title:
            run = store / "-".join(str(word).strip("-") for word in victim)
            if not run.exists():
                _exhume(["train", *victim, "--out", run], check=True)
            if "informed" in options and not (run / "known.safetensors").exists():
                _exhume(["known", run], check=True)
            found.append((title, ["attack", run, *options]))
    for title, recipe in (("audit with silent-units, 3072-1000-1000-10", False), ("audit with replay, 100-64-3", True)):
        if only in title:
            files = _network(store / "replay") if recipe else _network(store / "silent", (3072, 1000, 1000, 10), 300)
            told = ("--model", "budgets:replayed", "--samples", 24, "--recipe-file", files / "recipe.json")
            extra = told if recipe else ()
            found.append((title, ["audit", files / "after.safetensors", "--initial", files / "before.safetensors",
                                  *extra]))  # fmt: skip
    return found


def replayed() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 3))


def _network(folder: Path, widths: Sequence[int] = (100, 64, 3), samples: int = 24, steps: int = 40) -> Path:
    """An ordinary ReLU network before and after full-batch gradient descent, and the recipe of that."""
    if folder.exists():
        return folder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for wide, narrow in itertools.pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
        inputs, labels = torch.randn(samples, widths[0]), torch.arange(samples) % widths[-1]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    folder.mkdir()
    save_file(before, folder / "before.safetensors")
    save_file(model.state_dict(), folder / "after.safetensors")
    recipe = {"optimiser": "sgd", "rate": 0.05, "steps": steps, "loss": "cross-entropy", "labels": labels.tolist()}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def measured(title: str, words: Sequence[object], budget: float) -> Kept:
    began = time.monotonic()
    code, computed, waited, said = _exhume(words)
    return Kept(title, budget, round(time.monotonic() - began, 2), computed, waited, code, said)


def _exhume(words: Sequence[object], check: bool = False) -> tuple[int, float, float, str]:
    """Exit code, seconds of computing and of waiting for a core, and the line that says how it ended."""
    command = [sys.executable, "-m", "exhume", *map(str, words)]
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)},
        )
        waited = 0.0
        while not (over := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            time.sleep(0.02)
        waited = _waited(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        assert over is not None
        printed.seek(0)
        lines = printed.read().decode(errors="replace").splitlines()
    if check and code != 0:
        raise RuntimeError(f"{' '.join(command)}: {lines[-1:]}")
    told = [line for line in lines if line.startswith(("exhume: ", "recovered", "partial", "spurious", "not_conv"))]
    told += [line for line in lines if line.startswith("  ") and "(seed" in line]
    return code, round(used.ru_utime + used.ru_stime, 2), waited, "; ".join(line.strip()[:90] for line in told)


def _waited(process: int) -> float:
    """Of a process that has ended and was not waited for: the seconds that its main thread stood in the queue."""
    try:
        return round(int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9, 2)
    except (OSError, IndexError, ValueError):
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
