"""Networks as victims, from the command line: train, attack, evaluate, report, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
FACES = ("--data", "faces", "--samples", 3, "--side", 5)
SHORT = ("--until", 1e-3, "--steps", 40)
OURS = "users_cli_nets:small"
USERS = """
import torch
from torch import nn

def small():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 1))

def flat():
    return nn.Sequential(nn.Linear(25, 20), nn.Tanh(), nn.Dropout(0.1), nn.Linear(20, 1))

def words():
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 1))

def frozen():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 1)).requires_grad_(False)

def mixing():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(25, track_running_stats=False), nn.Linear(25, 1))

def headless():
    return nn.Sequential(nn.Flatten(), nn.Tanh())

def leaves():
    raise SystemExit(3)

number = 3
"""
VICTIMS = {
    "two-layer": ("--ratio", 2),
    "resnet": ("--ratio", 2, "--kernel", 6),
    "vit": ("--ratio", 2, "--patch", 5, "--depth", 1),
    OURS: (),
}


@pytest.fixture(autouse=True)
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "users_cli_nets.py").write_text(USERS)
    (tmp_path / "code" / "users_broken_nets.py").write_text("import a_package_that_is_not_there")
    monkeypatch.chdir(tmp_path / "code")
    yield
    sys.modules.pop("users_cli_nets", None)


def summary_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "with --json everything for people goes to standard error"
    values = json.loads(done.stdout)
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("victim", VICTIMS)
def test_every_network_is_trained_attacked_evaluated_and_reported(exhume: Command, tmp_path: Path, victim: str) -> None:
    run = tmp_path / "runs" / "a"
    trained = summary_of(exhume("train", victim, *FACES, *VICTIMS[victim], *SHORT, "--out", run, "--json"))
    assert (trained["victim"], trained["n"], trained["d"]) == (victim, 3, 25)
    assert trained["ratio"] == pytest.approx(trained["p"] / 75)
    assert trained["steps"] <= 40
    assert {"loss_function", "training_loss", "step_size", "floor"} <= trained.keys()
    model = ("--model", victim) if ":" in victim else ()
    attacked = summary_of(exhume("attack", run, *model, "--budget", "0.1s", "--json"))
    assert attacked["outcome"] in {"recovered", "partial", "spurious", "not_converged"}
    evaluated = summary_of(exhume("evaluate", run, *model, "--json"))
    assert evaluated["error"] >= 0
    assert evaluated["span_residual"] >= 0
    assert Path(summary_of(exhume("report", run, *model, "--json"))["report"]).is_file()
    gauged = summary_of(exhume("gauge", run / "observation.safetensors", "--dim", 25, "--json"))
    assert (gauged["p"], gauged["d"], gauged["n"]) == (trained["p"], 25, 3)
    listed = summary_of(exhume("runs", run.parent, "--json"))["runs"]
    assert [line["victim"] for line in listed] == [victim]


def test_what_a_user_reads_names_the_step_the_floor_and_the_next_command(exhume: Command, tmp_path: Path) -> None:
    shown = exhume("train", OURS, *FACES, *SHORT, "--out", tmp_path / "a")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert "rows brought to norm sqrt(d)" in lines[0]
    assert "trained 37 weights of the head on n = 3 samples" in lines[1]
    assert "largest curvature" in lines[1]
    assert lines[2] == "evaluation mode: batch norm uses its running statistics in 1"
    assert lines[3].startswith("floor: the true data explain the weights up to a loss of ")
    assert lines[4] == f"wrote {tmp_path / 'a'}; next: exhume attack {tmp_path / 'a'} --model {OURS}"


def test_a_run_made_with_users_code_needs_the_user_to_name_it(exhume: Command, tmp_path: Path) -> None:
    exhume("train", OURS, *FACES, *SHORT, "--out", tmp_path / "a")
    sys.modules.pop("users_cli_nets")
    for command in (("attack",), ("attack", "--model", "other:thing")):
        refused = exhume(command[0], tmp_path / "a", *command[1:])
        assert refused.returncode == 1
        assert f"expected --model {OURS}" in refused.stderr
    assert "users_cli_nets" not in sys.modules
    exhume("train", "two-layer", *FACES, "--width", 9, "--steps", 1, "--out", tmp_path / "b")
    refused = exhume("attack", tmp_path / "b", "--model", OURS)
    assert (refused.returncode, "expected no --model" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("victim", "size", "p"),
    [
        ("two-layer", ("--width", 20), 20),
        ("two-layer", ("--params", 33), 33),
        ("resnet", ("--width", 2, "--kernel", 6), 2 * 4),
        ("resnet", ("--width", 1), 49),
        ("vit", ("--embedding", 6, "--patch", 5), 6),
        ("vit", ("--params", 100, "--heads", 3, "--patch", 1), 75),  # 25 tokens, a multiple of three heads
    ],
)
def test_sizes_are_given_in_three_ways(
    exhume: Command, tmp_path: Path, victim: str, size: tuple[object, ...], p: int
) -> None:
    made = exhume("train", victim, *FACES, *size, "--steps", 1, "--out", tmp_path / "a", "--json")
    assert summary_of(made)["p"] == p


def test_the_recipe_and_the_knowledge_reach_the_configuration(exhume: Command, tmp_path: Path) -> None:
    recipe = ("--method", "sgd", "--momentum", 0.5, "--weight-decay", 0.01, "--batch-size", 2, "--step-size", 0.001)
    told = ("--initial", "distribution", "--activation", "gelu", "--seed", 4, "--defence", "prune50,int8")
    size = ("--width", 20, "--steps", 3, "--until", 0.1)
    made = exhume("train", "two-layer", *FACES, *size, *recipe, *told, "--out", tmp_path / "a", "--json")
    assert summary_of(made)["defence"] == "prune50+int8"
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    model = config["model"]
    assert {"width": 20, "activation": "gelu", "initial": "distribution", "seed": 4}.items() <= model.items()
    assert model["recipe"] == {
        "method": "sgd",
        "momentum": 0.5,
        "weight_decay": 0.01,
        "batch_size": 2,
        "step_size": 0.001,
        "until": 0.1,
        "steps": 3,
        "growing": False,
        "seed": 4,
    }
    zero = ("--initial", "zero", "--features-at", "midpoint")
    made = exhume("train", "two-layer", *FACES, "--width", 9, "--steps", 1, *zero, "--out", tmp_path / "b", "--json")
    assert summary_of(made)["initial"] == "zero"


def test_an_attack_says_again_what_is_done_about_dropout(exhume: Command, tmp_path: Path) -> None:
    own = ("train", "users_cli_nets:flat", *FACES, "--image-shape", "flat", *SHORT, "--out", tmp_path / "a")
    said = "evaluation mode: dropout is switched off in 2"
    assert said in exhume(*own).stdout.splitlines()
    attacked = exhume("attack", tmp_path / "a", "--model", "users_cli_nets:flat", "--iterations", 1)
    assert attacked.stdout.splitlines()[0] == said


def test_private_training_tells_its_epsilon_and_keeps_it(exhume: Command, tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="an extra: pip install 'exhume[dp]'")
    private = ("--width", 20, "--noise-multiplier", 2, "--private-steps", 3, "--delta", 1e-4)
    shown = exhume("train", "two-layer", *FACES, *private, "--out", tmp_path / "a")
    assert shown.returncode == 0, shown.stderr
    told = shown.stdout.splitlines()[2]
    assert told.startswith("DP-SGD: epsilon ")
    assert "at delta 0.0001 (noise multiplier 2, clip " in told
    assert told.endswith("3 steps); the clip and the step size were measured on the data, which epsilon does not cover")
    kept = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert f"DP-SGD: epsilon {kept['epsilon']:.3g} at delta {kept['delta']:g}" in told
    assert kept["noise_multiplier"] == 2
    assert kept["steps"] == 3
    fitted = exhume("train", "rf", *FACES, "--ratio", 2, *private[2:], "--clip", 5, "--out", tmp_path / "b", "--json")
    values = summary_of(fitted)
    assert (values["fit"], values["epsilon"], values["clip"]) == ("dp-sgd", kept["epsilon"], 5)
    assert 0.1 < values["floor"] < 1


def test_without_opacus_private_training_is_one_line(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    refused = exhume("train", "rf", *FACES, "--ratio", 2, "--epsilon", 3, "--out", tmp_path / "a")
    assert refused.returncode == 2
    assert refused.stderr.endswith("found none; pip install 'exhume[dp]'\n")
    assert refused.stderr.count("\n") == 1


def test_a_start_known_up_to_its_seed_is_searched_and_said(exhume: Command, tmp_path: Path) -> None:
    size = ("--width", 200, *SHORT, "--initial", "seed", "--seed", 7)
    trained = summary_of(exhume("train", "two-layer", *FACES, *size, "--out", tmp_path / "a", "--json"))
    assert trained["initial"] == "seed"
    assert trained["floor"] < 0.1, "what is left to explain once the seed is found"
    budget = ("--iterations", 2)
    shown = exhume("attack", tmp_path / "a", *budget)
    assert shown.stdout.splitlines()[0].startswith("start: seed 7 draws the initial head; ")
    attacked = summary_of(exhume("attack", tmp_path / "a", *budget, "--start-seeds", 5, "--json"))
    assert attacked["start_seed"] is None
    attacked = summary_of(exhume("attack", tmp_path / "a", *budget, "--start-seeds", 9, "--json"))
    assert attacked["start_seed"] == 7
    assert attacked["start_scale"] == pytest.approx(1, abs=0.1)


def test_weight_decay_is_taken_off_the_initial_head_and_said(exhume: Command, tmp_path: Path) -> None:
    size = ("--width", 200, "--steps", 50, "--weight-decay", 0.5)
    shown = exhume("train", "two-layer", *FACES, *size, "--out", tmp_path / "a")
    kept = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert 0.1 < kept["start_left"] < 0.9
    assert f"weight decay left {kept['start_left']:.4f} of the initial head, which is taken off" in shown.stdout


def test_flat_rows_and_a_named_head(exhume: Command, tmp_path: Path) -> None:
    shape = ("--image-shape", "flat", "--head", "0", "--out", tmp_path / "a", "--json")
    assert summary_of(exhume("train", "users_cli_nets:flat", *FACES, "--outputs", 1, *SHORT, *shape))["p"] == 20 * 26


NET = "train {victim} --data faces --samples 3 --side 5 --steps 2 --out {new}"
WRONG: dict[str, tuple[str, str]] = {
    "no such module": ("missing_nets:small", "module missing_nets that can be imported, found: ModuleNotFoundError"),
    "a module that fails": ("users_broken_nets:small", "No module named 'a_package_that_is_not_there'"),
    "no such factory": ("users_cli_nets:large", "expected 'large' in the module users_cli_nets, found small, flat"),
    "a number": ("users_cli_nets:number", "a factory to call, found an object of type int"),
    "a factory that leaves": ("users_cli_nets:leaves", "found: SystemExit: 3"),
    "no name": ("users_cli_nets:", "expected a model as package.module:factory, found 'users_cli_nets:'"),
    "no such head": ("users_cli_nets:small --head fc", "found 'fc', which the model does not have; there are 4"),
    "a head of another kind": ("users_cli_nets:small --head 0", "found '0' of type Conv2d; there are 4"),
    "no head": ("users_cli_nets:headless", "found none of type torch.nn.Linear"),
    "inputs that are no floats": ("users_cli_nets:words", "takes inputs of shape [1, 5, 5], found: RuntimeError"),
    "inputs of another shape": ("users_cli_nets:flat", "takes inputs of shape [1, 5, 5], found: RuntimeError"),
    "a shape of another size": ("users_cli_nets:small --image-shape 3,5,5", "d = 25 numbers, found [3, 5, 5]"),
    "a shape of words": ("users_cli_nets:small --image-shape wide", "whole numbers separated by commas, found 'wide'"),
    "a shape of nothing": ("users_cli_nets:small --image-shape 0,5", "like 3,32,32 or flat, found '0,5'"),
    "nothing to train": ("users_cli_nets:frozen", "a head that is trained, found one whose weights require no"),
    "batch norm that mixes samples": ("users_cli_nets:mixing", "batch norm with running statistics, found none in 1"),
    "outputs that the model lacks": ("users_cli_nets:small --outputs 2", "expected data with at least 2 classes"),
    "no size": ("two-layer", "expected one of --ratio and --params, found neither"),
    "two sizes": ("two-layer --width 3 --ratio 2", "expected a width, --ratio or --params, found two"),
    "no outputs": ("two-layer --width 3 --outputs 0", "expected outputs to be greater than or equal to 1, found 0"),
    "an unknown loss": ("two-layer --width 3 --loss hinge", "'square', 'logistic' or 'cross-entropy', found 'hinge'"),
    "cross-entropy of nothing": ("two-layer --width 3 --loss cross-entropy", "at least 2 classes for 1 outputs"),
    "an unknown method": ("two-layer --width 3 --method lbfgs", "'gd', 'sgd', 'adam' or 'closed-form', found 'lbfgs'"),
    "a batch with gd": ("two-layer --width 3 --batch-size 2", "expected no batch size with gd, found 2"),
    "momentum of one": ("two-layer --width 3 --momentum 1", "expected momentum to be less than 1, found 1.0"),
    "a negative decay": ("two-layer --width 3 --weight-decay -1", "greater than or equal to 0, found -1.0"),
    "a step of zero": ("two-layer --width 3 --step-size 0", "expected step_size to be greater than 0, found 0.0"),
    "no steps": ("two-layer --width 3 --steps 0", "expected steps to be greater than or equal to 1, found 0"),
    "an unknown start": ("two-layer --width 3 --initial guessed", "'known', 'seed', 'distribution' or 'zero', found"),
    "a start of two kinds": ("two-layer --width 3 --zero-head --initial distribution", "found 'distribution' with a"),
    "a midpoint of the unknown": (
        "two-layer --width 3 --features-at midpoint --initial distribution",
        "expected a known start for features at the midpoint",
    ),
    "a midpoint of a rule": (
        "two-layer --width 3 --features-at midpoint --initial seed",
        "expected a known start for features at the midpoint, found only its rule",
    ),
    "private training by adam": ("two-layer --width 3 --epsilon 1 --method adam", "for private training, found adam"),
    "private training to a loss": ("two-layer --width 3 --epsilon 1 --until 0.1", "found a loss of 0.1 to stop at"),
    "two ways to noise": ("two-layer --width 3 --epsilon 1 --noise-multiplier 1", "private training, found both"),
    "a clip for nothing": ("two-layer --width 3 --clip 1", "--epsilon or --noise-multiplier with --clip, --delta and"),
    "no privacy at all": ("two-layer --width 3 --epsilon 0", "expected epsilon to be greater than 0, found 0.0"),
    "a surgeon that does not see the features": (
        "two-layer --width 40 --features-at midpoint --defence obs50",
        "found them halfway; take --features-at trained",
    ),
    "layers that opacus refuses": ("vit --embedding 4 --patch 5 --noise-multiplier 1", "found one that Opacus"),
    "features at another place": ("two-layer --width 3 --features-at start", "'trained' or 'midpoint', found 'start'"),
    "an unknown activation": ("two-layer --width 3 --activation step", "expected an activation out of"),
    "an unknown defence": ("two-layer --width 3 --defence armour", "expected a defence such as"),
    "a kernel that is too large": ("resnet --width 2 --kernel 9", "first kernel of 1 to 7 pixels"),
    "a patch that does not fit": ("vit --embedding 4 --patch 3", "a patch that divides the side of 5 pixels, found 3"),
    "heads that do not fit": ("vit --embedding 5 --patch 5", "an embedding that 2 heads divide evenly, found 5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_requests_that_cannot_be_met_are_one_line(exhume: Command, tmp_path: Path, name: str) -> None:
    request, words = WRONG[name]
    victim, *flags = request.split(" ")
    refused = exhume("train", victim, *FACES, "--steps", 2, "--out", tmp_path / "a", *flags)
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("exhume: expected ")
    assert refused.stderr.count("\n") == 1
    assert words in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["code"], "nothing is left"


@pytest.mark.parametrize("victim", ["resnet", "vit"])
def test_rows_that_are_no_images_are_refused(exhume: Command, tmp_path: Path, victim: str) -> None:
    sphere = ("--data", "sphere", "--dim", 9, "--samples", 2, "--ratio", 1)
    refused = exhume("train", victim, *sphere, "--out", tmp_path / "a")
    assert (refused.returncode, "expected images for" in refused.stderr) == (2, True)


def test_training_that_overflows_is_one_line(exhume: Command, tmp_path: Path) -> None:
    refused = exhume("train", "two-layer", *FACES, "--width", 50, "--step-size", 1e6, "--out", tmp_path / "a")
    assert refused.returncode == 1
    assert "found overflow after" in refused.stderr
    assert "give a smaller step size" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_weights_that_do_not_fit_the_code_are_named(exhume: Command, tmp_path: Path) -> None:
    exhume("train", OURS, *FACES, *SHORT, "--out", tmp_path / "a")
    wider = USERS.replace("nn.Conv2d(1, 4, 3)", "nn.Conv2d(1, 4, 2)")
    (tmp_path / "code" / "users_cli_nets.py").write_text(wider)
    sys.modules.pop("users_cli_nets")
    refused = exhume("attack", tmp_path / "a", "--model", OURS)
    assert refused.returncode == 1
    assert "to fit the model, found 0.weight 4x1x3x3 instead of 4x1x2x2" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_ctrl_c_is_one_line_and_the_same_command_continues(
    exhume: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from exhume_papers.victims.span_iterates import SpanIterates

    moved = SpanIterates.move

    def interrupted(trainee: SpanIterates, step_size: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        moved(trainee, step_size)

    command = ("train", "two-layer", *FACES, "--width", 50, *SHORT, "--out", tmp_path / "a", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(SpanIterates, "move", interrupted)
        stopped = exhume(*command)
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr.splitlines()[-1].endswith("after 1 steps; the same command continues")
    assert {path.name for path in tmp_path.iterdir()} == {"code", ".a.training.safetensors"}
    assert summary_of(exhume(*command))["victim"] == "two-layer"
    assert {path.name for path in tmp_path.iterdir()} == {"code", "a"}


# Kills itself without warning while it writes its third checkpoint; a checkpoint is written after every step.
KILLED = """
import os, pathlib, signal, sys
from functools import partial
import exhume_papers.making.training_run as run
import exhume_papers.victims.descent_loop as loop
from exhume.cli.app import main
run.Surroundings = partial(loop.Surroundings, seconds_between=-1.0)
save, saved = loop.write_checkpoint, []
def save_or_die(*given):
    if len(saved) == 2:
        pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    save(*given)
    saved.append(given)
loop.write_checkpoint = save_or_die
sys.argv = ["exhume", *sys.argv[1:]]
main()
"""


def test_a_training_that_was_killed_ends_as_if_it_had_not_been(exhume: Command, tmp_path: Path) -> None:
    victim = ("train", "two-layer", *FACES, "--width", 50, *SHORT)
    assert exhume(*victim, "--out", tmp_path / "calm").returncode == 0
    command = [sys.executable, "-c", KILLED, *map(str, (*victim, "--out", tmp_path / "run"))]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / ".run.training.safetensors").exists()
    assert not (tmp_path / "run").exists()
    assert exhume(*victim, "--out", tmp_path / "run").returncode == 0
    for file in (tmp_path / "calm").iterdir():
        assert file.read_bytes() == (tmp_path / "run" / file.name).read_bytes()
    assert not (tmp_path / ".run.training.safetensors").exists()
