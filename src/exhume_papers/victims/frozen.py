"""A head alone, on an extractor that does not move: linear probes.

The features that the head reads are then the same at every step. They are computed once, and training costs n × h × k
operations per step instead of passes through the network; the change of the head is in their span exactly.
"""

import copy
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume.networks.head import head_tensors, split_at_head
from exhume.networks.loading import prepare_for_attack
from exhume_papers.victims.descent import TrainedModule, check_outputs, train_module
from exhume_papers.victims.descent_loop import Surroundings, Tensors
from exhume_papers.victims.losses import LossName, loss_named
from exhume_papers.victims.recipe import Descent, DescentRecipe, HistoryPoint

PINV_CUTOFF = 1e-12


def freeze_body(model: nn.Module, head: nn.Linear) -> None:
    """From now on nothing but the head is trained."""
    model.requires_grad_(False)
    head.requires_grad_(True)


def is_frozen(model: nn.Module, head: nn.Linear) -> bool:
    own = {id(parameter) for parameter in head.parameters()}
    return not any(value.requires_grad and id(value) not in own for value in model.parameters())


def train_head(
    model: nn.Module,
    head_name: str,
    inputs: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    loss: LossName,
    recipe: DescentRecipe,
    image_shape: tuple[int, ...],
    around: Surroundings | None = None,
) -> TrainedModule:
    """As `train_module`, for a model whose body is frozen. Where something follows the head, all of it is run."""
    whole = copy.deepcopy(model)
    note = prepare_for_attack(whole)
    head = whole.get_submodule(head_name)
    assert isinstance(head, nn.Linear), "a plan names a linear head"
    shaped = inputs.reshape(len(inputs), *image_shape)
    check_outputs(whole, shaped, targets)
    features = split_at_head(whole, head, shaped[:2] if len(shaped) > 1 else shaped.repeat_interleave(2, dim=0))
    with torch.no_grad():
        seen = features(shaped)
        last = torch.allclose(head(seen), whole(shaped), rtol=1e-4, atol=1e-6)
    if not last:
        return train_module(model, inputs, targets, loss, recipe, image_shape, around)
    initial = _copied(whole.state_dict())
    if recipe.method == "closed-form":
        done = _solve(head, seen, targets, loss, recipe)
    else:
        done = train_module(head, seen, targets, loss, recipe, around=around)
    state = dict(zip(head_tensors(whole, head_name), done.state.values(), strict=True))
    whole.load_state_dict({**initial, **state})
    return replace(done, model=whole, initial=initial, state=_copied(whole.state_dict()), note=note)


@torch.no_grad()
def _solve(
    head: nn.Linear, seen: Float[Tensor, "n h"], targets: Float[Tensor, "n k"], loss: LossName, recipe: DescentRecipe
) -> TrainedModule:
    """The minimiser nearest to W(0), or with weight decay λ the ridge fit W = Yᵀ(K + λnk/2)⁻¹Φ, which has none of W(0).

    The square loss is (1/nk) ‖ΦWᵀ − Y‖². One step of Newton's method, so it counts as one step of size 1.
    """
    exact, wanted = seen.double(), targets.double()
    weights = head.weight.double()
    if head.bias is not None:
        exact = torch.cat([exact, exact.new_ones(len(exact), 1)], dim=1)
        weights = torch.cat([weights, head.bias.double()[:, None]], dim=1)
    kept = 0.0 if recipe.weight_decay else 1.0
    kernel = exact @ exact.T
    kernel.diagonal().add_(recipe.weight_decay * targets.numel() / 2)
    inverse = torch.linalg.pinv(kernel, rtol=PINV_CUTOFF, hermitian=True)
    solved = kept * weights + (inverse @ (wanted - kept * exact @ weights.T)).T @ exact
    initial = _copied(head.state_dict())
    trained = copy.deepcopy(head)
    trained.weight.copy_(solved[:, : head.in_features])
    if trained.bias is not None:
        trained.bias.copy_(solved[:, -1])
    named = loss_named(loss)
    first, final = float(named.value(head(seen), targets)), float(named.value(trained(seen), targets))
    descent = Descent(
        loss=final,
        steps=1,
        step_size=1.0,
        stopped="target",
        curvature=None,
        lowered=0,
        history=(HistoryPoint(0, first), HistoryPoint(1, final)),
    )
    return TrainedModule(trained, initial, _copied(trained.state_dict()), descent, None, kept)


def _copied(state: Tensors) -> Tensors:
    return {name: value.detach().clone() for name, value in state.items()}
