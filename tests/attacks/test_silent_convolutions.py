"""Convolutions as dense layers on patches, on networks that torch's own optimisers trained here."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.metrics.errors import relative_errors
from exhume.metrics.pieces import piece_errors
from exhume.readings import Patches
from exhume.reconstruction import Outcome


def images(n: int, seed: int) -> Tensor:
    """Smooth pictures of 12 x 12 with three channels, so that neighbouring patches resemble each other."""
    stream = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, 3, 6, 6, generator=stream)
    fine = torch.randn(n, 3, 12, 12, generator=stream)
    return nn.functional.interpolate(coarse, size=12, mode="bilinear") + 0.3 * fine


@dataclass(frozen=True, eq=False)
class Trained:
    model: nn.Sequential
    before: dict[str, Tensor]
    inputs: Tensor


def train(layer: nn.Conv2d, *middle: nn.Module, n: int = 4, seed: int = 0, steps: int = 60) -> Trained:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer.reset_parameters()
        body = nn.Sequential(layer, *(middle or (nn.ReLU(),)), nn.Flatten())
        inputs, labels = images(n, seed), torch.arange(n) % 3
        with torch.no_grad():
            width = body(inputs).shape[1]
        model = nn.Sequential(*body, nn.Linear(width, 3))
        before = copy.deepcopy(model.state_dict())
        made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(steps):
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            made.step()
    return Trained(model, before, inputs)


def observed(victim: Trained) -> exhume.Observation:
    return exhume.observe(victim.model, initial=victim.before, input_shape=(3, 12, 12))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 300, 6, stride=6),
        nn.Conv2d(3, 400, 6, stride=6, padding=3),
        nn.Conv2d(3, 400, 4, stride=4, dilation=2),
    ],
)
def test_patches_come_back_exactly(layer: nn.Conv2d) -> None:
    victim = train(layer, n=3)
    observation = observed(victim)
    assert observation.layers[0].reads == "patches of the inputs"
    reading = observation.layers[0].reading
    assert reading is not None
    found = exhume.reconstruct(observation)
    assert found.outcome is Outcome.RECOVERED
    assert found.facts["rank"] == len(found.inputs) == 3 * reading.pieces
    assert float(piece_errors(reading(victim.inputs.flatten(1)), found.inputs).max()) < 1e-3


def test_patches_are_what_the_kernel_sees() -> None:
    """Against a loop over places."""
    layer = nn.Conv2d(2, 5, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    inputs = torch.randn(2, 2, 7, 6)
    patches = Patches.of(layer, (2, 7, 6))
    assert patches is not None
    pieces = patches(inputs.flatten(1))
    padded = nn.functional.pad(inputs, (0, 0, 1, 1))
    rows, columns = patches.grid
    naive = [padded[:, :, 2 * i : 2 * i + 3, j : j + 3 : 2].flatten(1) for i in range(rows) for j in range(columns)]
    assert torch.equal(pieces, torch.stack(naive, dim=1))
    assert layer.bias is not None
    given = pieces @ layer.weight.flatten(1).T + layer.bias
    torch.testing.assert_close(given.transpose(1, 2).reshape(2, 5, rows, columns), layer(inputs))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 300, 6, stride=6, groups=3),
        nn.Conv2d(3, 300, 6, stride=6, padding=2, padding_mode="reflect"),
        nn.Conv2d(3, 6, 3),
        nn.Conv2d(3, 300, 3),
    ],
)
def test_convolutions_out_of_reach_are_not_offered(layer: nn.Conv2d) -> None:
    """Groups, other paddings, few channels, and patches more than they have numbers."""
    assert observed(train(layer, n=2, steps=3)).layers == ()


def test_a_patch_embedding_without_activation_is_offered_where_its_patches_may_be_pictures() -> None:
    """Patches of 5 x 5 are too small to have edges that tell them apart."""
    (layer,) = observed(train(nn.Conv2d(3, 300, 6, stride=6), nn.Identity(), n=2, steps=3)).layers
    assert layer.leak == pytest.approx(1.0, rel=0.1)
    assert observed(train(nn.Conv2d(3, 300, 5, stride=5), nn.Identity(), n=2, steps=3)).layers == ()


def test_an_audit_counts_records_by_their_patches(tmp_path) -> None:  # type: ignore[no-untyped-def]
    victim = train(nn.Conv2d(3, 300, 6, stride=6), nn.ReLU(), nn.AvgPool2d(2), n=4)
    done = exhume.audit(
        victim.model, initial=victim.before, truth=victim.inputs, control=images(4, 99), budget_seconds=60
    )
    assert (done.summary["recovered"], done.summary["records"], done.summary["rank"]) == (4, 4, 16)
    assert done.summary["control"]["recovered"] == 0
    assert done.summary["reads"] == "patches of the inputs"
    assert done.summary["worst_relative_error"] < 1e-3
    assert "4 of 4 training images can be read from the weights in patches" in done.sentence
    assert "keep below" in done.save(tmp_path / "report.html").read_text()
    attacked = {line["name"]: line["leak"] for line in done.subject.layers}
    assert attacked["0"] == "attacked"


def test_patches_that_overlap_become_images(tmp_path) -> None:  # type: ignore[no-untyped-def]
    victim = train(nn.Conv2d(3, 500, 8, stride=4), n=4)
    observation = observed(victim)
    found = exhume.reconstruct(observation)
    assert found.pieces is not None
    assert found.pieces.inputs.shape == (16, 192)
    assert found.facts["reads"] == "inputs"
    assert float(relative_errors(victim.inputs.flatten(1).double(), found.inputs.double()).max()) < 1e-3
    done = exhume.audit(victim.model, initial=victim.before, truth=victim.inputs, budget_seconds=60)
    assert (done.summary["recovered"], done.summary["samples_found"]) == (4, 4)
    assert "16 of 16 patches overlap into 4 images" in done.summary["subspace"]
    assert "It found 16 of them" in done.save(tmp_path / "report.html").read_text()


def test_an_audit_without_records_shows_patches(tmp_path) -> None:  # type: ignore[no-untyped-def]
    victim = train(nn.Conv2d(3, 300, 6, stride=6), n=3)
    done = exhume.audit(victim.model, initial=victim.before, input_shape=(3, 12, 12), budget_seconds=60)
    assert "12 patches of training images can be read" in done.sentence
    assert done.evidence.pictures is not None
    assert done.evidence.pictures.found.shape[1:] == (3, 6, 6)
    assert done.summary["n"] is None  # patches are not counted as records
    done.save(tmp_path / "report.html")
