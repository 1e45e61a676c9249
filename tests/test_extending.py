"""How to add an attack, an activation, a data set, a victim, an option and a section: as docs/architecture.md says.

The package on that page is what somebody else would write: one file each, and one line that names it. It is found by
its entry points, or registered by calls, and used through the command line.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume import activations
from exhume.attacks import registry
from exhume.data.config import SOURCES
from exhume.errors import UsageError
from exhume.files import read_tensors

Command = Callable[..., subprocess.CompletedProcess[str]]

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TRAIN = ("train", "rf", "--data", "waves", "--samples", 2, "--ratio", 4, "--activation", "swish", "--json")
NETWORK = ("--data", "waves", "--samples", 2, "--steps", 3, "--json")
END = "-- end of a command\n"
COMMANDS = f"""
import json, sys
from exhume.cli.app import main
for line in json.load(sys.stdin):
    sys.argv = ["exhume", *line]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise
    print({END!r}, end="")
"""
"""A process that has never seen the package before, with one command after the other."""
ATTACK_LINE = ("--method", "plain-descent", "--pace", 0.5, "--iterations", 7, "--samples", 2, "--json")


def examples(language: str) -> list[str]:
    """The blocks of the page in that language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


def entry_points_of_the_page() -> str:
    """As an installed package has them."""
    (text,) = examples("toml")
    groups = tomllib.loads(text)["project"]["entry-points"]
    return "\n".join(
        line for group, points in groups.items() for line in (f"[{group}]", *(f"{a} = {b}" for a, b in points.items()))
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder for sys.path with a package in it, not installed."""
    place = tmp_path / "site"
    (place / "my_package").mkdir(parents=True)
    (place / "my_package" / "__init__.py").write_text("")
    for text in examples("python"):
        (place / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    return place


def check(attacked: dict[str, Any]) -> None:
    assert (attacked["method"], attacked["iterations"], attacked["samples_found"]) == ("plain-descent", 7, 2)
    assert attacked["activation"] == "swish"
    assert "waves" in attacked["data"]


def test_a_package_is_found_by_its_entry_points(package: Path, tmp_path: Path) -> None:
    metadata = package / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points_of_the_page())

    lines = [
        (*TRAIN, "--out", tmp_path / "run"),
        ("attack", tmp_path / "run", *ATTACK_LINE),
        ("attack", "--help"),
        ("compare", tmp_path / "run", "--attacks", "plain-descent", "--json"),
        ("weigh", tmp_path / "run", "--digits", 2, "--json"),
        ("weigh", "--help"),
        ("train", "my_package.network:small", *NETWORK, "--out", tmp_path / "net"),
        ("attack", tmp_path / "net", "--model", "my_package.network:small", "--iterations", 2, "--json"),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    given = json.dumps([[str(word) for word in line] for line in lines])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], input=given, capture_output=True, text=True, timeout=250, env=environment
    )
    assert done.returncode == 0, done.stderr
    _, attacked, help_of_attack, compared, weighed, help_of_weigh, _, of_network = done.stdout.removesuffix(END).split(
        END
    )
    check(json.loads(attacked.splitlines()[-1]))
    assert "--pace FLOAT" in help_of_attack
    assert json.loads(compared.splitlines()[-1])["attacks"][0]["outcome"] is not None
    norm = float(read_tensors(tmp_path / "run" / "observation.safetensors", "observation").tensors["weights"].norm())
    assert json.loads(weighed.splitlines()[-1])["norm"] == round(norm, 2)
    assert "--digits INTEGER" in help_of_weigh
    assert json.loads(of_network.splitlines()[-1])["d"] == 16


@pytest.fixture
def registered(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The same by calls; nothing of it stays."""
    import exhume

    monkeypatch.syspath_prepend(str(package))
    attack, activation, data = (
        importlib.import_module(f"my_package.{name}") for name in ("attack", "activation", "data")
    )
    exhume.register_attack(attack.PlainDescent)
    exhume.register_activation(activation.SWISH)
    exhume.register_data(data.WAVES)
    yield attack.PlainDescent
    registry._registered.remove(attack.PlainDescent)
    activations.ACTIVATIONS._known.pop("swish")
    SOURCES._known.pop("waves")
    for name in [name for name in sys.modules if name.startswith("my_package")]:
        del sys.modules[name]


def test_a_package_is_registered_by_calls(registered: Any, exhume: Command, tmp_path: Path) -> None:
    done = exhume(*TRAIN, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    done = exhume("attack", tmp_path / "run", *ATTACK_LINE)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout.splitlines()[-1]))
    wrong = exhume("attack", tmp_path / "run", "--pace", 2)
    assert "expected --pace with --method plain-descent, found auto, which is split-newton here" in wrong.stderr


def test_a_method_object_of_somebody_else_is_taken_in_python(registered: Any) -> None:
    import torch

    import exhume

    rows = torch.randn(60, 6)
    observation = exhume.observe_features(rows, torch.randn(60), "swish")
    found = exhume.reconstruct(observation, method=registered(iterations=3), samples=2)
    assert (found.method, found.iterations, len(found.inputs)) == ("plain-descent", 3, 2)


def test_a_name_that_is_taken_is_refused(registered: Any) -> None:
    import exhume

    with pytest.raises(UsageError, match="found 'plain-descent', which is taken"):
        exhume.register_attack(registered)
    with pytest.raises(UsageError, match="found 'relu', which is taken"):
        exhume.register_activation(activations.activation("relu"))


def test_what_is_read_off_an_activation(registered: Any) -> None:
    swish = activations.activation("swish")
    assert swish.linear_plus_even
    assert not any((swish.homogeneous, swish.silent_below_zero, swish.rectifier, swish.linear))


def test_an_option_is_in_the_line_and_the_file_of_its_request(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from exhume.requests.command_line import shown_line

    monkeypatch.syspath_prepend(str(package))
    request = importlib.import_module("my_package.command").WeighRequest(run=Path("a"), digits=5)
    assert shown_line(request) == "exhume weigh a --digits 5"
    assert type(request).from_config(request.to_config()) == request
    for name in ("my_package.command", "my_package"):
        sys.modules.pop(name, None)
