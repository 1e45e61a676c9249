"""Is --memory obeyed? Attacks on random features whose V is smaller and larger than the budget, and their peaks; one of
them to its end, because candidates grow on the way; one on a Vision Transformer; and audits of networks by one method
each.

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
ONE_METHOD = "import kill_launch; kill_launch.plan_one_method(); from exhume.cli import main; main()"
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


@dataclass(frozen=True)
class Audit:
    """By one method alone, of a network of `soak_networks`."""

    method: str
    network: str
    shape: tuple[int, ...]
    samples: int
    memory: str = "1G"
    budget: str = "40s"
    initial: str = "before"
    further: tuple[str, ...] = ()


AUDITS = (
    Audit("silent-units", "wide", (3072,), 100, "1200M"),
    Audit("replay", "wide", (3072,), 100, "1900M", further=("--recipe-file", "recipe.json")),
    Audit("firing-patterns", "table", (60,), 80),
    Audit("rewind", "digits", (64,), 20, initial="head"),
    Audit("dense-spans", "lenet", (1, 28, 28), 10, further=("--image-shape", "1,28,28")),
)


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
    for audit in AUDITS:
        measured.append(audited(place / audit.network, audit))
        print(_line(measured[-1]), flush=True)
    refusals.append(refused_network(place / "network"))
    print(f"refused: {refusals[-1].said}", flush=True)
    return measured, refusals


def to_its_end(run: Path) -> Measured:
    victim = TO_ITS_END
    shape = ("--dim", victim.dim, "--samples", victim.samples, "--params", victim.params)
    _exhume("train", "rf", "--data", "sphere", *shape, "--seed", 0, "--out", run)
    return measure(victim, run, ("--method", "split-newton"), "500M")


def audited(folder: Path, audit: Audit) -> Measured:
    if not folder.exists():
        write_states(folder, audit)
    states = (folder / "after.safetensors", "--initial", folder / f"{audit.initial}.safetensors", *audit.further)
    told = ("--model", f"soak_networks:{audit.network}", "--samples", audit.samples)
    limits = ("--memory", audit.memory, "--budget", audit.budget)
    words = [folder / word if word == "recipe.json" else word for word in (*states, *told, *limits)]
    out = folder / audit.method
    code, peak, said = _exhume("audit", *words, "--out", out, check=False, method=audit.method)
    if code == 0:
        made = json.loads((out / "summary.json").read_text())["method"]
        code, said = (0, said) if made == audit.method else (1, f"it was {made} that was made")
    name = f"{audit.network}, n = {audit.samples}"
    return Measured(name, 0, f"audit, {audit.method}", True, _size(audit.memory), round(peak / 2**20, 1), code, said)


def write_states(folder: Path, audit: Audit) -> None:
    """The network before and after plain gradient descent, its head before it, and the recipe."""
    import soak_networks
    import torch
    from safetensors.torch import save_file

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = getattr(soak_networks, audit.network)(), torch.randn(audit.samples, *audit.shape)
        outputs = model(inputs).shape[1]
    labels = torch.arange(audit.samples) % outputs
    folder.mkdir()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    save_file(state, folder / "before.safetensors")
    last = max(int(name.partition(".")[0]) for name in state)
    save_file(
        {name: value for name, value in state.items() if name.startswith(f"{last}.")}, folder / "head.safetensors"
    )
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
    name = f"p = {victim.params:,}, d = {victim.dim}, n = {victim.samples}"
    told = options[1] == "heavy-ball" or "--samples" in options
    return Measured(name, round(victim.megabytes), options[1], told, _size(budget), round(peak / 2**20, 1), code, said)


def _size(budget: str) -> float:
    """In MiB."""
    return float(budget[:-1]) * {"G": 1024, "M": 1}[budget[-1]]


def refused(victim: Victim, run: Path, options: Sequence[str]) -> Refusal:
    began = time.monotonic()
    code, _, said = _exhume("attack", run, *options, "--memory", "410M", check=False)
    seconds = round(time.monotonic() - began, 1)
    would = re.search(r"give --memory (\d+M)", said)
    then = None if would is None else measure(victim, run, options, would[1])
    return Refusal(
        f"p = {victim.params:,}, d = {victim.dim}, n = {victim.samples}", options[1], code, said, seconds, then
    )


def _exhume(*arguments: object, check: bool = True, method: str = "") -> tuple[int, int, str]:
    """Exit code, peak memory in bytes, and the last line on standard error. An audit plans that `method` alone."""
    here = str(Path(__file__).parent)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SOAK_METHOD": method}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, *(("-c", ONE_METHOD) if method else ("-m", "exhume")), *map(str, arguments)]
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
