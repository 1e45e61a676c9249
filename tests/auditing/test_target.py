import pytest
import torch
from torch import nn

from exhume.auditing.layers import listed
from exhume.auditing.module_target import target_of_module
from exhume.auditing.target import target_of_rows
from exhume.errors import ExhumeError, UsageError
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import HeldRows
from exhume.observing.of_module import default_input_shape


def _two_layer() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))


def _weight(model: nn.Sequential, place: int) -> torch.Tensor:
    layer = model[place]
    assert isinstance(layer, nn.Linear)
    return layer.weight


def _moved(model: nn.Module, only_head: bool = False) -> dict[str, torch.Tensor]:
    """The state before a training that is over now."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not only_head or name.startswith("2."):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return before


def test_the_change_of_the_head_is_what_is_attacked_where_its_start_is_known() -> None:
    model = _two_layer()
    before = _moved(model, only_head=True)
    target = target_of_module(model, input_shape=(6,), initial=before)
    assert isinstance(target.observation.features, RidgeFeatures)
    assert torch.allclose(target.observation.weights, _weight(model, 2) - before["2.weight"])
    assert target.observation.knowledge.initial == "known"
    assert (target.drift, target.observation.knowledge.initial_body) == (0.0, False)
    unknown = target_of_module(model, input_shape=(6,)).observation
    assert torch.equal(unknown.weights, _weight(model, 2))
    assert unknown.knowledge.initial == "distribution"
    assert target_of_module(model, input_shape=(6,), initial="zero").observation.knowledge.initial == "zero"


def test_features_that_moved_are_averaged_for_the_attack_and_published_for_the_outputs() -> None:
    model = _two_layer()
    before = _moved(model)
    target = target_of_module(model, input_shape=(6,), initial=before)
    assert isinstance(target.observation.features, RidgeFeatures)
    assert isinstance(target.observation.features.rows, HeldRows)
    halfway = (_weight(model, 0) + before["0.weight"]) / 2
    assert torch.allclose(target.observation.features.rows.values, halfway)
    assert target.drift is not None
    assert target.drift > 0
    rows = torch.randn(4, 6)
    assert torch.allclose(target.outputs(rows).float(), model(rows), atol=1e-5)


def test_a_form_that_only_one_end_of_training_has_is_not_used() -> None:
    """Fresh batch norm behind the activation does nothing, up to rounding: the start then looks like φ(Wx + b)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.BatchNorm1d(20, eps=1e-12), nn.Linear(20, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(3):
        model(torch.randn(30, 6))
    target = target_of_module(model, input_shape=(6,), initial=before)
    assert isinstance(target.observation.features, ModuleFeatures)
    assert target.observation.weights.shape == (2, 21), "with its bias"


def test_batch_norm_before_the_activation_is_seen_through_at_both_ends() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(3):
        model(torch.randn(30, 6))
    target = target_of_module(model, input_shape=(6,), initial=before)
    assert isinstance(target.observation.features, RidgeFeatures)
    assert target.observation.weights.shape == (2, 20)


def test_any_other_network_is_attacked_through_its_own_features_and_gives_its_own_outputs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 16, 2), nn.Tanh(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    target = target_of_module(model, input_shape=(1, 4, 4), initial=before, image_shape=(1, 4, 4))
    assert isinstance(target.observation.features, ModuleFeatures)
    assert target.observation.features.groups is not None
    assert target.head.shape == (2, 145)
    assert "dropout is switched off" in target.notes[0]
    rows = torch.randn(3, 16)
    assert torch.allclose(target.outputs(rows).float(), model.eval()(rows.reshape(3, 1, 4, 4)), atol=1e-5)


def test_half_precision_is_read_in_single_and_the_users_module_stays_as_it_is() -> None:
    model = _two_layer().half()
    target = target_of_module(model, input_shape=(6,), initial="zero")
    assert target.head.dtype == torch.float32
    assert _weight(model, 0).dtype == torch.float16
    assert model.training


def test_layers_are_listed_with_what_is_known_of_them() -> None:
    model = _two_layer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        _weight(model, 0).add_(torch.outer(torch.randn(20), torch.randn(6)))
    facts = {fact.name: fact for fact in target_of_module(model, input_shape=(6,), initial=before).layers}
    assert (facts["2"].place, facts["0"].place) == ("head", "first")
    assert facts["0"].parameters == 140
    assert "spans only 1 of 6 dimensions" in facts["0"].why
    frozen = target_of_module(model, input_shape=(6,), initial=model.state_dict()).layers
    assert {fact.name: fact.still for fact in frozen} == {"0": True, "2": False}


def test_a_layer_counts_as_attacked_only_by_an_attack_that_ran() -> None:
    facts = target_of_module(_two_layer(), input_shape=(6,)).layers
    lines = {
        how: [(line["leak"], line["why"].rpartition(". ")[2]) for line in listed(facts, read)]
        for how, read in {
            "none": {},
            "head": {"split-newton": ["head"]},
            "by name": {"silent-units": ["0"]},
            "both": {"subspace": ["first", "head"]},
            "all": {"ntk": ["all"]},
        }.items()
    }
    out = ("not attacked", "Not attacked here.")
    assert lines["none"] == [out, out]
    assert lines["head"] == [out, ("attacked", "Attacked here by split-newton.")]
    assert lines["by name"] == [("attacked", "Attacked here by silent-units."), out]
    assert lines["both"] == [("attacked", "Attacked here by subspace.")] * 2
    assert lines["all"] == [("attacked", "Attacked here by ntk.")] * 2


def test_weights_over_rows_may_lie_either_way_round() -> None:
    rows = HeldRows(torch.randn(9, 4))
    weights = torch.randn(2, 9)
    for given in (weights, weights.T):
        assert torch.equal(target_of_rows(rows, given, activation="relu").head, weights)
    assert target_of_rows(rows, weights[0], activation="relu").head.shape == (1, 9)
    with pytest.raises(ExhumeError, match="one weight for each of 9 features"):
        target_of_rows(rows, torch.randn(2, 8), activation="relu")
    with pytest.raises(ExhumeError, match="floating point"):
        target_of_rows(rows, torch.ones(9, dtype=torch.int8), activation="relu")


def test_the_shape_of_an_input_follows_from_a_first_linear_layer_only() -> None:
    assert default_input_shape(_two_layer()) == (6,)
    with pytest.raises(UsageError, match="give --image-shape"):
        default_input_shape(nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 1)))
