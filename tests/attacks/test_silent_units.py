"""The attack on the change of one dense layer, on networks that torch's own optimisers trained here."""

import pytest
import torch
from torch import Tensor, nn

import exhume
from exhume.errors import ExhumeError, UsageError
from exhume.layer_states import LayerStates, averaged, changed
from exhume.metrics.errors import relative_errors
from exhume.observing.optimiser_states import optimiser_layer
from exhume.reconstruction import Outcome, Reconstruction
from silent_victims import Trained, train


def attack(states: LayerStates, seed: int = 0) -> Reconstruction:
    return exhume.reconstruct(exhume.observe_layer(states), seed=seed)


def worst(victim: Trained, found: Reconstruction) -> float:
    return float(relative_errors(victim.inputs.double(), found.inputs.double()).max())


@pytest.mark.parametrize("seed", [3, 4])
def test_all_samples_come_back_with_their_norms_and_signs(seed: int) -> None:
    victim = train(seed=seed)
    found = attack(changed(victim.start, victim.end, bias=True))
    assert found.outcome is Outcome.RECOVERED
    assert found.facts["rank"] == len(found.inputs) == 12
    assert worst(victim, found) < 1e-3
    assert found.facts["expected_error"] < 1e-3
    assert found.facts["chance"] < 1e-6


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rounding_of_the_file_does_not_protect(kind: torch.dtype) -> None:
    victim = train(seed=5)
    found = attack(changed(victim.start, victim.end.to(kind).float(), bias=True))
    assert found.facts["rank"] == 12
    assert worst(victim, found) < 0.1


def test_what_weight_decay_left_of_the_start_is_found() -> None:
    victim = train(seed=6, lr=0.05, momentum=0.9, weight_decay=1e-3)
    found = attack(changed(victim.start, victim.end, bias=True))
    assert found.facts["decay"] < 0.999
    assert found.outcome is Outcome.RECOVERED
    assert worst(victim, found) < 1e-3


def test_without_a_bias_directions_come_back_and_this_is_said() -> None:
    victim = train(seed=7, bias=False)
    found = attack(changed(victim.start, victim.end, bias=False))
    assert found.facts["directions_only"]
    errors = relative_errors(victim.inputs.double(), found.inputs.double(), directions_only=True)
    assert float(errors.max()) < 1e-3


def momentum_buffer() -> tuple[Trained, LayerStates]:
    victim = train(seed=8)
    return victim, optimiser_layer(victim.model, victim.optimiser.state_dict(), "0")


def raw_gradient() -> tuple[Trained, LayerStates]:
    victim = train(seed=9, steps=0)
    victim.model.zero_grad()
    labels = torch.arange(len(victim.inputs)) % 3
    nn.functional.cross_entropy(victim.model(victim.inputs), labels).backward()
    weight, bias = victim.layer.weight.grad, victim.layer.bias.grad
    assert weight is not None
    assert bias is not None
    gradient = torch.cat([weight, bias[:, None]], dim=1)
    return victim, averaged(gradient, victim.end, bias=True, source="update")


def two_checkpoints() -> tuple[Trained, LayerStates]:
    early, late = train(seed=10, steps=20), train(seed=10, steps=60)
    return late, changed(early.end, late.end, bias=True, source="checkpoints")


def moving_average() -> tuple[Trained, LayerStates]:
    """The weights and their average over the last steps, as a file with both holds them."""
    victim = train(seed=11, steps=60)
    average = torch.stack([train(seed=11, steps=steps).end for steps in (20, 30, 40, 50, 60)]).mean(dim=0)
    return victim, changed(average, victim.end, bias=True, source="average")


@pytest.mark.parametrize("made", [momentum_buffer, raw_gradient, two_checkpoints, moving_average])
def test_any_state_of_a_layer_will_do(made) -> None:  # type: ignore[no-untyped-def]
    victim, states = made()
    found = attack(states)
    assert found.facts["rank"] == 12
    assert found.outcome is Outcome.RECOVERED
    assert worst(victim, found) < 0.01


@pytest.mark.parametrize("seed", [8, 9])
def test_weight_decay_is_taken_off_a_momentum_buffer(seed: int) -> None:
    """The buffer holds wd / (1 - momentum) = 0.005 of the weights beside the gradients.

    Not always: of seeds 50 to 59 seven came back whole, and on three the multiple was not found. Of seed 8 here eleven
    of twelve are within a tenth, and none is called recovered.
    """
    victim = train(seed=seed, lr=0.05, momentum=0.9, weight_decay=5e-4)
    found = attack(optimiser_layer(victim.model, victim.optimiser.state_dict(), "0"))
    assert found.facts["decay"] == pytest.approx(0.005, rel=0.01)
    assert found.facts["rank"] == 12
    assert int((relative_errors(victim.inputs.double(), found.inputs.double()) < 0.1).sum()) >= 11
    called = [value >= 0.5 for value in found.certificate.confidence]
    if any(called):
        assert float(relative_errors(found.inputs[called].double(), victim.inputs.double()).max()) < 0.1


def test_adam_leaves_no_rank_and_nothing_is_called_recovered() -> None:
    victim = train(seed=12, optimiser="Adam")
    found = attack(changed(victim.start, victim.end, bias=True))
    assert found.facts["rank"] is None
    assert found.outcome is Outcome.NOT_CONVERGED
    assert "full rank" in found.facts["subspace"]


def test_a_start_of_another_seed_leaves_no_rank() -> None:
    victim, other = train(seed=13), train(seed=14)
    found = attack(changed(other.start, victim.end, bias=True))
    assert found.outcome is Outcome.NOT_CONVERGED


def test_smooth_activations_are_not_called_recovered() -> None:
    victim = train(seed=15, activation=nn.GELU)
    found = attack(changed(victim.start, victim.end, bias=True, leak=0.2))
    assert all(value < 0.5 for value in found.certificate.confidence)


def test_it_continues_where_it_was_stopped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from exhume.attacks.running.loop import Limits, run_attack
    from exhume.attacks.silent.attack import SilentUnits

    victim = train(seed=16, n=20, d=60)
    observation = exhume.observe_layer(changed(victim.start, victim.end, bias=True))
    whole = run_attack(observation, SilentUnits())
    saved = tmp_path / "checkpoint.safetensors"
    part = run_attack(observation, SilentUnits(), limits=Limits(seconds=1e-6), checkpoint=saved)
    assert part.stopped
    rest = run_attack(observation, SilentUnits(), checkpoint=saved)
    assert torch.equal(rest.reconstruction.inputs, whole.reconstruction.inputs)


def test_the_same_seed_gives_the_same_numbers() -> None:
    victim = train(seed=17)
    states = changed(victim.start, victim.end, bias=True)
    assert torch.equal(attack(states, seed=2).inputs, attack(states, seed=2).inputs)


def test_bad_states_are_refused_in_one_line() -> None:
    victim = train(seed=18, steps=2)
    start, end = victim.start, victim.end
    broken = end.clone()
    broken[0, 0] = float("nan")
    for problem, made in {
        "of one shape": lambda: changed(start[:, :-1], end, bias=True),
        "same weights twice": lambda: changed(end, end, bias=True),
        "NaN": lambda: changed(start, broken, bias=True),
        "found zeros": lambda: averaged(torch.zeros_like(end), end, bias=True),
    }.items():
        with pytest.raises(ExhumeError, match=problem):
            made()


def test_an_observation_without_a_layer_is_refused() -> None:
    observation = exhume.observe_features(torch.randn(50, 5), torch.randn(50), "relu")
    with pytest.raises(UsageError, match="dense layer with ReLU"):
        exhume.reconstruct(observation, method="silent-units")


def test_more_samples_than_half_the_units_are_refused() -> None:
    victim = train(n=30, d=60, h=50, seed=19)
    with pytest.raises(ExhumeError, match="twice as many units"):
        attack(changed(victim.start, victim.end, bias=True))


def test_an_audit_of_any_module_tries_it_first(tmp_path) -> None:  # type: ignore[no-untyped-def]
    victim = train(seed=20)
    done = exhume.audit(victim.model, initial=victim.before, truth=victim.inputs, budget_seconds=60)
    assert done.subject.attempts[0]["method"] == "silent-units"
    assert done.summary["recovered"] == 12
    assert done.summary["rank"] == 12
    assert done.summary["layer"] == "0"
    assert done.summary["worst_relative_error"] < 1e-3
    page = done.save(tmp_path / "report.html").read_text()
    assert "units of the layer were kept from the attack" in page
    assert "weights that the attack never used" not in page.split("What was not tested")[0]


class Behind(nn.Module):
    """A head with a hidden layer on a frozen extractor."""

    def __init__(self) -> None:
        super().__init__()
        self.extractor = nn.Sequential(nn.Linear(20, 50), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.extractor(inputs))


def test_embeddings_behind_a_frozen_extractor_come_back_exactly() -> None:
    import copy

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(21)
        model, inputs, labels = Behind(), torch.randn(10, 20), torch.arange(10) % 3
        before = copy.deepcopy(model.state_dict())
        made = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
        for _ in range(80):
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            made.step()
    layer = exhume.observe(model, initial=before, input_shape=(20,)).layers[0]
    assert layer.reads == "frozen features"
    found = attack(layer).pieces
    assert found is not None
    with torch.no_grad():
        embeddings = model.extractor(inputs)
    assert float(relative_errors(embeddings.double(), found.inputs.double()).max()) < 1e-3
