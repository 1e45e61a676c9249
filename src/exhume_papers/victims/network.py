"""Networks of any kind as victims: what is trained, and what an attacker sees of it.

The head reads features g(x) of the layers before it, and every step of gradient descent changes it by a combination of
the features of that step. An attacker sees the trained layers before the head, so the features at the end (or, knowing
the initial layers too, their average with those at the start), and the change of the head: W(T) − c W(0), where c is
what weight decay left of the start. Who knows W(0) up to its seed, or only its distribution, sees W(T).
"""

import hashlib
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.data.dataset import Dataset
from exhume.errors import UsageError
from exhume.features.module import ModuleFeatures, penultimate_features
from exhume.features.network import body_state, network_features
from exhume.features.network_source import NetworkSource
from exhume.networks.head import head_tensors, with_bias
from exhume.networks.loading import with_statistics_of
from exhume.observation import Knowledge, Observation
from exhume.observing.of_head import observe_head
from exhume.start_rule import StartRule
from exhume_papers.victims.descent import TrainedModule, train_module
from exhume_papers.victims.descent_loop import Surroundings, Tensors
from exhume_papers.victims.frozen import freeze_body, is_frozen, train_head
from exhume_papers.victims.network_config import NetworkConfig
from exhume_papers.victims.network_plans import FactoryConfig, NetworkPlan, ResNetConfig, VisionTransformerConfig
from exhume_papers.victims.norms import common_norm
from exhume_papers.victims.privacy import Spent, train_privately
from exhume_papers.victims.recipe import Descent
from exhume_papers.victims.targets import make_targets

PlannedConfig = ResNetConfig | VisionTransformerConfig | FactoryConfig


@dataclass(frozen=True, eq=False, repr=False)
class NetworkVictim:
    """A trained network: what an attacker sees of it, and what only its owner knows."""

    observation: Observation
    descent: Descent
    initial_head: Float[Tensor, "k p"]
    """With its bias as a last column, if it has one."""
    note: str | None
    """What was done about dropout and batch norm, if there is any."""
    scale: float = 1.0
    """c: what weight decay left of the initial head."""
    spent: Spent | None = None
    """What a private training came to."""

    @property
    def decayed_head(self) -> Float[Tensor, "k p"]:
        """c W(0): with weight decay W(T) − c W(0), and not W(T) − W(0), is in the span of the features on the way."""
        return self.scale * self.initial_head


def train_network(config: PlannedConfig, data: Dataset, around: Surroundings | None = None) -> NetworkVictim:
    plan = config.plan(data)
    plan.model.to(data.inputs.dtype)
    if config.zero_head:
        _to_zero(plan)
    if config.freeze:
        freeze_body(plan.model, plan.head)
    targets = make_targets(data, config.loss, plan.outputs)
    around = around or Surroundings()
    # a factory may draw its weights as it likes: training goes on only from the start that it began with
    start = {"network": config.model_dump(mode="json", exclude={"recipe"}), "start": _digest(plan.model.state_dict())}
    around = replace(around, settings={**around.settings, **start})
    trained, spent = _train(config, plan, data, targets, around)
    trained.descent.require_end()
    initial, final = _head_matrix(plan, trained.initial), _head_matrix(plan, trained.state)
    source = _source(config, plan, trained, data.inputs.dtype)
    features = network_features(source, plan.factory)
    _check_rebuilt(features, plan, trained, data.inputs[:2])
    observation = observe_head(
        features,
        final,
        Knowledge(len(data.inputs), common_norm(data.inputs), config.initial, source.initial_state is not None),
        data.image_shape,
        initial=initial,
        scale=trained.scale,
        start=StartRule("network", *initial.shape),
    )
    return NetworkVictim(observation, trained.descent, initial, trained.note, trained.scale, spent)


def _train(
    config: PlannedConfig, plan: NetworkPlan, data: Dataset, targets: Tensor, around: Surroundings
) -> tuple[TrainedModule, Spent | None]:
    if config.privacy is None:
        shape = plan.input_shape
        if is_frozen(plan.model, plan.head):
            name = plan.head_name
            return train_head(plan.model, name, data.inputs, targets, config.loss, config.recipe, shape, around), None
        return train_module(plan.model, data.inputs, targets, config.loss, config.recipe, shape, around), None
    done = train_privately(
        plan.model,
        data.inputs,
        targets,
        config.loss,
        config.privacy,
        config.recipe,
        plan.input_shape,
        around.progress,
    )
    return done.module, done.spent


def _source(config: NetworkConfig, plan: NetworkPlan, trained: TrainedModule, dtype: torch.dtype) -> NetworkSource:
    halfway = config.features_at == "midpoint"
    initial = with_statistics_of(trained.state, trained.initial)
    return NetworkSource(
        factory=plan.factory,
        head=plan.head_name,
        input_shape=plan.input_shape,
        state=body_state(plan.model, plan.head_name, trained.state),
        arguments=plan.arguments,
        initial_state=body_state(plan.model, plan.head_name, initial) if halfway else None,
        dtype=dtype,
        bias=plan.head.bias is not None,
        feature_shape=plan.feature_shape,
        group_axis=plan.group_axis,
    )


@torch.no_grad()
def _check_rebuilt(
    features: ModuleFeatures, plan: NetworkPlan, trained: TrainedModule, rows: Float[Tensor, "n d"]
) -> None:
    """What a factory keeps outside its state dict is not in the observation: the features would be others."""
    rebuilt = features.networks[-1](rows.reshape(len(rows), *plan.input_shape))
    own = penultimate_features(trained.model, plan.head_name, plan.input_shape)(rows)
    if not torch.allclose(rebuilt, own, rtol=1e-4, atol=1e-5 * float(own.abs().max())):
        raise UsageError(
            f"expected {plan.factory} to build the same network again, found other features with the same weights; "
            "register what it draws or computes as parameters or buffers"
        )


def _head_matrix(plan: NetworkPlan, state: Tensors) -> Float[Tensor, "k p"]:
    weight, *bias = (state[name] for name in head_tensors(plan.model, plan.head_name))
    return with_bias(weight, bias[0] if bias else None).clone()


@torch.no_grad()
def _to_zero(plan: NetworkPlan) -> None:
    for parameter in plan.head.parameters():
        parameter.zero_()


def _digest(state: Tensors) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
