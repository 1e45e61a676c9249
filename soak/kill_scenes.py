"""The commands that are killed: what each needs, the folder that it writes, and whom to kill."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Forked

Process = subprocess.Popen[bytes] | Forked
LAUNCH = str(Path(__file__).with_name("kill_launch.py"))
ALONE = (sys.executable, LAUNCH)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", LAUNCH)
PROBLEM = ("--data", "sphere", "--dim", "20", "--samples", "4", "--seed", "1")
RATE, STEPS, LABELS = 0.1, 10, [0, 1, 2]  # of the networks
SPEC = """
seeds = 3

[[victim]]
kind = "rf"
data = "sphere"
dim = 8
samples = 2
ratio = [1, 4]

[[attack]]
method = "heavy-ball"
iterations = [5, 200]
"""


def the_process(process: Process, chance: random.Random) -> int:
    return process.pid


def one_rank(process: Process, chance: random.Random) -> int | None:
    """One of the processes that torchrun started; None while there are none."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return None
    return int(chance.choice(sorted(children))) if children else None


@dataclass(frozen=True)
class Scene:
    """`command(folder)` writes into `folder`; `prepare(folder)` makes what it needs there. `share` of all kills."""

    name: str
    share: float
    prepare: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    victim: Callable[[Process, random.Random], int | None] = the_process
    start: tuple[str, ...] = ALONE
    ranks: int = 1
    new_folder: bool = False
    """Whether the command makes its folder as a whole: it is then complete or absent, and a second call is refused."""
    out: str = ""
    method: str = ""
    """Of an audit: the only method that it plans, so that kills strike that one and not those before it."""
    starts_processes: bool = False
    """Whether the command needs a process that was started afresh, because it starts others itself."""


def scenes(store: Path) -> list[Scene]:
    """`store` holds what scenes share: it is made once."""
    trained, audited, network = store / "trained", store / "audited", store / "network"

    def a_copy(folder: Path) -> None:
        shutil.copytree(trained, folder, dirs_exist_ok=True)

    def a_spec(folder: Path) -> None:
        (folder / "grid.toml").write_text(SPEC)

    two_layer = ("two-layer", *PROBLEM, "--width", "500", "--until", "1e-20", "--steps", "20000")
    attack = ("--method", "heavy-ball", "--step", "1e-2", "--iterations", "400", "--seed", "1")
    split = ("--dtype", "float64", "--method", "split-newton", "--iterations", "27", "--seed", "1")
    weights = ("audit", audited / "w.safetensors", "--features", audited / "V.safetensors", "--activation", "relu")
    records = ("--truth", audited / "truth.safetensors", "--initial", "zero", "--seed", "1")
    return [
        Scene("audit, silent units", 0.1, _nothing, lambda f: _on_a_network(network, f), new_folder=True, out="audit"),
        *(_by_one_method(network, method) for method in ALONE_IN_AN_AUDIT),
        Scene(
            "scan", 0.1, _nothing, lambda f: ["scan", str(network), "--rows", f"{f}/r.csv", "--sarif", f"{f}/s.sarif"]
        ),
        Scene("train", 0.2, _nothing, lambda f: ["train", *two_layer, "--out", f"{f}/run"], new_folder=True, out="run"),
        Scene("attack, gradient", 0.15, a_copy, lambda f: ["attack", str(f), *attack]),
        Scene("attack, Newton", 0.15, a_copy, lambda f: ["attack", str(f), *split]),
        Scene(
            "sweep in one process",
            0.15,
            a_spec,
            lambda f: ["sweep", f"{f}/grid.toml", "--engine", "here", "--out", f"{f}/out"],
        ),
        Scene(
            "sweep with workers",
            0.15,
            a_spec,
            lambda f: ["sweep", f"{f}/grid.toml", "--workers", "1", "--threads", "1", "--out", f"{f}/out"],
            starts_processes=True,
        ),
        Scene(
            "audit",
            0.1,
            _nothing,
            lambda f: [*map(str, (*weights, *records)), "--out", f"{f}/audit"],
            new_folder=True,
            out="audit",
        ),
        Scene("attack on two ranks", 0.1, a_copy, lambda f: ["attack", str(f), *split], one_rank, TORCHRUN, ranks=2),
    ]


def make_store(store: Path) -> None:
    """A victim to attack, and the weights of another one to audit."""
    train = ("train", "rf", *PROBLEM, "--ratio", "6")
    environment = os.environ | {"SOAK_FOLDER": str(store), "SOAK_NOTES": str(store)}
    made = Forked([*train, "--out", str(store / "trained")], environment)
    _, words = made.communicate()
    if made.returncode != 0:
        raise RuntimeError(f"expected a victim to attack, found {words.decode(errors='replace')[-500:]}")
    write_audited(store / "audited")
    _write_network(store / "network")


ALONE_IN_AN_AUDIT = {
    "firing-patterns": ("after", "before", ()),
    "rewind": ("wide", "head", ()),
    "dense-spans": ("seen", "unseen", ("--model", "soak_networks:pictures", "--image-shape", "1,6,6")),
    "replay": ("after", "before", ("--model", "soak_networks:small", "--recipe-file", "recipe.json")),
}
"""The states that each of these is given, and what else."""


def _by_one_method(network: Path, method: str) -> Scene:
    after, before, further = ALONE_IN_AN_AUDIT[method]
    words = [str(network / word) if word.endswith(".json") else word for word in further]

    def command(folder: Path) -> list[str]:
        return [*_on_a_network(network, folder, after, before), *words]

    return Scene(f"audit, {method}", 0.1, _nothing, command, new_folder=True, out="audit", method=method)


def _on_a_network(network: Path, folder: Path, after: str = "after", before: str = "before") -> list[str]:
    """It goes on from its progress, which lies outside of what is compared, because times are in it; but kills strike
    at operations on its files, too: its name begins like the folder's."""
    states = [f"{network}/{after}.safetensors", "--initial", f"{network}/{before}.safetensors"]
    return ["audit", *states, "--progress", f"{folder}-progress", "--budget", "10m", "--out", f"{folder}/audit"]


def _nothing(folder: Path) -> None:
    pass


def write_audited(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    stream = torch.Generator().manual_seed(3)
    samples = torch.randn(3, 12, generator=stream)
    samples *= 12**0.5 / samples.norm(dim=1, keepdim=True)
    rows = torch.randn(400, 12, generator=stream) / 12**0.5
    weights = torch.randn(1, 3, generator=stream) @ (samples @ rows.T).relu()
    folder.mkdir()
    save_file({"head.weight": weights}, folder / "w.safetensors")
    save_file({"V": rows}, folder / "V.safetensors")
    save_file({"inputs": samples}, folder / "truth.safetensors")


def _write_network(folder: Path) -> None:
    """A ReLU network and a convolution before and after their training, how they were trained, and records packed
    along by mistake."""
    from safetensors.torch import save_file
    from soak_networks import pictures, small

    folder.mkdir()
    before, after = _trained(small(), (6,))
    start, wide = _trained(small(200), (6,))
    head = {name: value for name, value in start.items() if name.startswith("2.")}
    unseen, seen = _trained(pictures(), (1, 6, 6))
    states = {"before": before, "after": after, "head": head, "wide": wide, "unseen": unseen, "seen": seen}
    for name, state in states.items():
        save_file(state, folder / f"{name}.safetensors")
    recipe = {"optimiser": "sgd", "rate": RATE, "steps": STEPS, "labels": LABELS}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (folder / "train.csv").write_text("age,city,ill\n31,Ulm,0\n52,Bern,1\n47,Ulm,1\n")


def _trained(model: Any, shape: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its state before and after."""
    import torch
    from torch import nn

    stream = torch.Generator().manual_seed(4)
    inputs, labels = torch.randn(len(LABELS), *shape, generator=stream), torch.tensor(LABELS)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter[0].numel() if parameter.ndim > 1 else shape[-1]
            parameter.copy_(torch.randn(parameter.shape, generator=stream) / fan_in**0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return before, {name: value.clone() for name, value in model.state_dict().items()}
