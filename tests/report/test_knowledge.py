"""The page's list of what the attacker knew, held against what each attack really made use of."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import exhume
from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.spectrum import FrequencySpectrum
from exhume.attacks.running.loop import run_attack
from exhume.attacks.silent.attack import SilentUnits
from exhume.attacks.single_layer.split_newton import SplitNewton
from exhume.attacks.subspace.attack import SubspaceAttack
from exhume.errors import ExhumeError
from exhume.features.rows import HeldRows
from exhume.layer_states import Source, averaged, changed
from exhume.observation import Initial, Observation
from exhume.reconstruction import Reconstruction
from exhume.report.knowledge import knowledge, not_tested
from exhume.report.subject import attempt_line
from method_cases import CASES, SHAPE, MethodCase, one_layer, random_features, samples, two_layers
from silent_victims import train

Alter = Callable[[Observation], Observation]


def ticked(found: Reconstruction | None, observation: Observation) -> dict[str, str]:
    """The ticked items by their first words, with what is said of them."""
    items = [item["what"] for item in knowledge(found, observation) if item["known"]]
    return {what.partition(" (")[0]: what.partition(" (")[2].rstrip(")") for what in items}


def run(observation: Observation, method: AnyMethod) -> Reconstruction:
    return run_attack(observation, method).reconstruction


def other_rows(seen: Observation) -> Observation:
    initial = seen.initial_rows
    if initial is None:
        return seen
    rows = initial.block(0, initial.p)
    return replace(seen, initial_rows=HeldRows(rows + rows.roll(1, dims=0)))


def other_states(seen: Observation) -> Observation:
    if not seen.layers:
        return seen
    states = seen.layers[0]
    return replace(seen, layers=(replace(states, target=states.target + 0.1 * states.target.roll(1, dims=0)),))


def other_known(seen: Observation) -> Observation:
    return seen if seen.known is None else replace(seen, known=replace(seen.known, inputs=seen.known.inputs.flip(1)))


def other_labels(seen: Observation) -> Observation:
    if seen.known is None or seen.known.labels is None:
        return seen
    return replace(seen, known=replace(seen.known, labels=seen.known.labels + 0.5))


def other_subspace(seen: Observation) -> Observation:
    return seen if seen.subspace is None else replace(seen, subspace=seen.subspace.flip(0))


def told(**knowledge_: object) -> Alter:
    return lambda seen: replace(seen, knowledge=replace(seen.knowledge, **knowledge_))  # type: ignore[arg-type]


ALTERED: dict[str, Alter] = {
    "The layers before the head as they were before training": lambda seen: other_states(other_rows(seen)),
    "The number of training samples": told(samples=2),
    "The norm of the training rows": told(norm=5.0),
    "A subspace that the data lie in": other_subspace,
    "The labels": other_labels,
    "Any training sample, or the seed that drew them": other_known,
}


def same(case: MethodCase, before: Reconstruction, observation: Observation) -> bool:
    """Whether the attack finds the same; one that is refused does not."""
    try:
        after = run(observation, case.method)
    except ExhumeError:
        return False
    shapes = before.candidates.shape == after.candidates.shape
    return shapes and torch.equal(before.candidates, after.candidates) and before.held_out_loss == after.held_out_loss


@pytest.mark.parametrize("name", CASES)
def test_what_is_ticked_is_what_the_attack_made_use_of(name: str, shapes_unchecked: None) -> None:
    """Ticked: the attack finds something else where that is altered. Not ticked: it finds the same, to the bit."""
    case = CASES[name]()
    before = run(case.observation, case.method)
    known = ticked(before, case.observation)
    for what, alter in ALTERED.items():
        assert (what in known) != same(case, before, alter(case.observation)), what


@pytest.mark.parametrize("name", CASES)
def test_a_shape_that_only_displays_is_told_from_one_that_the_search_uses(name: str, shapes_unchecked: None) -> None:
    case = CASES[name]()
    if case.observation.image_shape is None:
        return
    before = run(case.observation, case.method)
    said = ticked(before, case.observation)["The shape of the images"]
    unused = same(case, before, replace(case.observation, image_shape=None))
    assert (said == "to display them") == unused


@pytest.mark.parametrize("name", CASES)
def test_the_weights_that_are_named_are_those_that_were_attacked(name: str, shapes_unchecked: None) -> None:
    case = CASES[name]()
    said = ticked(run(case.observation, case.method), case.observation)
    weights = said["The trained weights, white-box, after training"]
    assert ("layer" in weights) == (case.held != "weights")
    assert ("The features in front of them" in said) == (case.held != "units")


@pytest.mark.parametrize("prior", ["none", "1/f", "measured", "cut", "edges"])
def test_a_prior_is_ticked_by_its_name(prior: str, shapes_unchecked: None) -> None:
    measured = FrequencySpectrum.measured(samples(), SHAPE, "holidays")
    release = SplitNewton(iterations=20)
    methods: dict[str, AnyMethod] = {
        "none": release,
        "1/f": ImagePrior(release=release),
        "measured": ImagePrior(measured, release),
        "cut": ImagePrior(release=release, resolution=5),
    }
    details = {
        "1/f": "image: 1/f",
        "measured": "image: holidays",
        "cut": "image: 1/f, nothing finer than 5 frequencies",
        "edges": "pictures have few edges",
    }
    observation = pictured() if prior == "edges" else random_features()
    found = run(observation, SilentUnits(2) if prior == "edges" else methods[prior])
    assert ticked(found, observation).get("A prior on the data") == details.get(prior)
    gap = next(gap for gap in not_tested(found, observation, True, None, []) if "learned image prior" in gap)
    assert (details.get(prior, "public data") in gap) is True


def pictured() -> Observation:
    """A layer that was trained on smooth pictures, whose layout shows in its span."""
    stream = torch.Generator().manual_seed(3)
    coarse = torch.nn.functional.interpolate(torch.rand(6, 1, 3, 3, generator=stream), size=(8, 8), mode="bilinear")
    inputs = coarse.flatten(start_dim=1)
    before = torch.randn(300, 65, generator=stream) / 8
    extended = torch.cat([inputs, torch.ones(6, 1)], dim=1)
    fires = (extended @ before.T > 0).float()
    after = before + 0.01 * (torch.randn(300, 6, generator=stream) * fires.T) @ extended
    return exhume.observe_layer(changed(before, after, bias=True))


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        ("zero", "zero"),
        ("known", "known"),
        ("seed", "one of those that a known rule draws from a seed"),
        ("distribution", None),
    ],
)
def test_a_start_of_which_only_the_distribution_is_told_is_not_ticked(initial: Initial, said: str | None) -> None:
    observation = told(initial=initial)(random_features())
    for found in (run(observation, HeavyBall(iterations=2)), None):
        assert ticked(found, observation).get("The weights of the last layer before training") == said


def test_features_that_are_taken_halfway_tell_of_the_layers_before_training() -> None:
    observation = told(initial_body=True)(random_features())
    found = run(observation, HeavyBall(iterations=2))
    assert ticked(found, observation)["The layers before the head as they were before training"] == (
        "the features are taken halfway"
    )


@pytest.mark.parametrize(
    ("source", "title", "detail"),
    [
        ("training", "The layers before the head as they were before training", "whose change was used"),
        ("checkpoints", "Another state of a layer, or an average of its gradients", "two checkpoints"),
        ("average", "Another state of a layer, or an average of its gradients", "moving average"),
        ("momentum", "Another state of a layer, or an average of its gradients", "momentum buffer"),
        ("adam", "Another state of a layer, or an average of its gradients", "exp_avg"),
        ("optimiser", "Another state of a layer, or an average of its gradients", "that the optimiser keeps"),
        ("update", "Another state of a layer, or an average of its gradients", "federated client"),
        ("stationary", None, None),
    ],
)
def test_the_states_of_a_layer_are_named(
    source: Source, title: str | None, detail: str | None, shapes_unchecked: None
) -> None:
    victim = train(n=6, d=16, h=300)
    if source in ("training", "checkpoints", "average"):
        states = changed(victim.start, victim.end, bias=True, source=source)
    else:
        states = averaged(victim.end - victim.start, victim.end, bias=True, source=source)
    observation = exhume.observe_layer(states)
    said = ticked(run(observation, SilentUnits(2)), observation)
    titles = {
        "The layers before the head as they were before training",
        "Another state of a layer, or an average of its gradients",
    }
    assert set(said) & titles == ({title} if title else set())
    if title and detail:
        assert detail in said[title]


def test_a_layer_that_reads_something_else_than_inputs_names_it(shapes_unchecked: None) -> None:
    seen = one_layer()
    observation = replace(seen, layers=(replace(seen.layers[0], reads="frozen features"),))
    said = ticked(run(observation, SilentUnits(2)), observation)
    assert said["The features in front of them"] == "the layer reads frozen features"


def test_layers_count_as_tested_where_an_attack_has_read_them_that_ran() -> None:
    seen = two_layers()
    attacks: list[AnyMethod] = [HeavyBall(iterations=1), SubspaceAttack("first-layer")]
    lines = [attempt_line(run(seen, method), "", stopped=False) for method in attacks]
    assert "Layers other than the head, and" in not_tested(None, seen, True, None, lines[:1])[1]
    assert not_tested(None, seen, True, None, lines)[1] == "Layers other than the head and the first one."
    failed = lines[1] | {"outcome": None, "layers": []}
    assert "Layers other than the head, and" in not_tested(None, seen, True, None, [lines[0], failed])[1]
    assert not_tested(None, seen, True, None, [failed])[1] == "Any layer."


def test_without_a_record_the_observation_speaks() -> None:
    found = replace(run(random_features(), HeavyBall(iterations=1)), given={}, facts={"prior": "image (1/f)"})
    said = ticked(found, random_features())
    assert said["The number of training samples"] == "3"
    assert said["A prior on the data"] == "image (1/f"
