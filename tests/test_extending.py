"""How to add an attack, an activation and a data set: one file, and one line that names it, outside of the tree.

The package below is what somebody else would write. It is found by its entry points, or registered by calls, and used
through the command line.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume import activations
from exhume.attacks import registry
from exhume.data import sources
from exhume.errors import UsageError

Command = Callable[..., subprocess.CompletedProcess[str]]

ATTACK = '''
"""Gradient descent from a random start: an attack in one file."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from exhume.attacks.foundation.composition import Composition
from exhume.attacks.foundation.hyperparameters import option
from exhume.attacks.foundation.retraction import to_norm
from exhume.attacks.single_layer.method import RidgeMethod
from exhume.attacks.foundation.state import State, Step


@dataclass(frozen=True)
class PlainDescent(RidgeMethod):
    iterations: int = option(20, "at most so many.")
    pace: float = option(1.0, "the step.")

    name: ClassVar[str] = "plain-descent"
    needs: ClassVar[str] = "It is an example."
    composition: ClassVar[Composition] = Composition(
        features="phi(Vx + b)",
        target="its weights",
        coefficients="free",
        parametrisation="rows at their norm",
        solver="gradient descent",
        knowledge="the last layer",
        published="nowhere",
    )

    def steps(self, problem, resume=None):
        shape = (problem.samples or 2, problem.loss.features.d)
        rows = to_norm(torch.randn(shape, generator=problem.generator()).to(problem.dtype), problem.norm)
        for iteration in range(self.iterations + 1):
            fit = problem.loss.fit(rows)
            yield Step(iteration, rows, fit.loss, State({"rows": rows}, {"iteration": iteration}))
            rows = to_norm(rows - self.pace * problem.loss.gradient(fit), problem.norm)
'''
ACTIVATION = """
import torch

from exhume import Activation

SWISH = Activation.of("swish", lambda z: z * torch.sigmoid(z))
"""
DATA = """
import torch

from exhume import DataSource
from exhume.data.config import check_images
from exhume.data.image_set import ImageSet, as_dataset


def load(config):
    across = torch.arange(16, dtype=torch.float64).reshape(1, 4, 4)
    pixels = torch.stack([(across * (number + 1)).sin().abs() for number in range(config.samples)])
    return as_dataset(ImageSet(pixels, (), torch.full((config.samples,), -1)), config)


WAVES = DataSource("waves", load, check_images)
"""
ENTRY_POINTS = """
[exhume.attacks]
plain-descent = waves_package.attack:PlainDescent
[exhume.activations]
swish = waves_package.activation:SWISH
[exhume.data]
waves = waves_package.data:WAVES
"""
TRAIN = ("train", "rf", "--data", "waves", "--samples", 2, "--ratio", 4, "--activation", "swish", "--json")
ATTACK_LINE = ("--method", "plain-descent", "--pace", 0.5, "--iterations", 7, "--samples", 2, "--json")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder for sys.path with a package in it, not installed."""
    place = tmp_path / "site"
    (place / "waves_package").mkdir(parents=True)
    for name, text in {"__init__": "", "attack": ATTACK, "activation": ACTIVATION, "data": DATA}.items():
        (place / "waves_package" / f"{name}.py").write_text(text)
    return place


def check(attacked: dict[str, Any]) -> None:
    assert (attacked["method"], attacked["iterations"], attacked["samples_found"]) == ("plain-descent", 7, 2)
    assert attacked["activation"] == "swish"
    assert "waves" in attacked["data"]


def test_a_package_is_found_by_its_entry_points(package: Path, tmp_path: Path) -> None:
    metadata = package / "waves_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: waves-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)

    def exhume(*arguments: object) -> str:
        line = [sys.executable, "-m", "exhume", *map(str, arguments)]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(package)}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    exhume(*TRAIN, "--out", tmp_path / "run")
    check(json.loads(exhume("attack", tmp_path / "run", *ATTACK_LINE).splitlines()[-1]))
    assert "--pace FLOAT" in exhume("attack", "--help")
    compared = json.loads(exhume("compare", tmp_path / "run", "--attacks", "plain-descent", "--json").splitlines()[-1])
    assert compared["attacks"][0]["outcome"] is not None


@pytest.fixture
def registered(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The same by calls; nothing of it stays."""
    import exhume

    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setattr(sources, "_registered", dict(sources._registered))
    attack, activation, data = (
        importlib.import_module(f"waves_package.{name}") for name in ("attack", "activation", "data")
    )
    exhume.register_attack(attack.PlainDescent)
    exhume.register_activation(activation.SWISH)
    exhume.register_data(data.WAVES)
    yield attack.PlainDescent
    registry.forget_attack(attack.PlainDescent)
    activations.forget_activation("swish")
    for name in [name for name in sys.modules if name.startswith("waves_package")]:
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
