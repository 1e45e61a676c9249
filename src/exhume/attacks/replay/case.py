"""What a replayed training is given, and the verdict on what it finds.

*Held out.* A tenth of the first layer's units, with all weights that go into them and out of them. The search trains
them like all others, but neither fits nor looks at where they ended.

*The verdict.* Held-out weights that are predicted to rounding (`EXPLAINED`) say that the guess trains to the published
network. They do not say that every sample is determined: a sample that hardly moved a weight may be off. So the noise
that the held-out weights leave, σ² per weight, is sent through the Jacobian of the training: the candidates scatter
with covariance σ² (JᵀJ)⁻¹, and a candidate is called recovered where the error to expect is below `EXACT` of its norm.
Where the held-out weights are not predicted to rounding nothing is called, because the Jacobian of a training that
jumps says little about guesses that are far off.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhume import seeds
from exhume.attacks.foundation.certificate import require_share, unjudged
from exhume.attacks.foundation.given import Given, of_the_samples
from exhume.attacks.foundation.judgement import Facts, Judgement, Resources
from exhume.attacks.replay.dense_network import DenseNetwork, dense_network
from exhume.attacks.replay.fitting import Guess, ReplayLoss
from exhume.attacks.replay.unrolled import Smoothing, Training
from exhume.attacks.single_layer.memory_plan import PROCESS_BYTES
from exhume.errors import UsageError
from exhume.held_out import HeldOut
from exhume.machine import memory_bytes
from exhume.observation import Observation
from exhume.recipe import Recipe
from exhume.reconstruction import Certificate, Outcome

HELD_OUT = 0.1
EXPLAINED = 1e-4  # of the change, as a ratio of norms: hundreds of times what rounding leaves of a training in float32
SQUARES = 4  # matrices of the unknowns, beside the Jacobian
EXACT = 0.03  # the expected error, over a candidate's norm, up to which it is called recovered


@dataclass(frozen=True, eq=False, repr=False)
class ReplayProblem:
    """`labels`: the known targets, None where they are unknown."""

    loss: ReplayLoss
    labels: Float[Tensor, "n k"] | None
    seed: int

    def generator(self, start: int) -> torch.Generator:
        return seeds.start_of(self.seed, start)


@dataclass(frozen=True, eq=False, repr=False)
class ReplayCase:
    """Its candidates are samples with their targets behind them, d + k columns."""

    observation: Observation
    problem: ReplayProblem
    unseen: Bool[Tensor, " p"]
    facts: Facts

    @classmethod
    def open(cls, observation: Observation, seed: int, held_out: float, resources: Resources) -> "ReplayCase":
        ends, recipe = observation.ends, observation.recipe
        if ends is None or recipe is None:
            raise UsageError(
                "expected a whole network before and after training and its recipe for --method replay, found "
                f"{'no recipe' if ends is not None else 'no such network'}; observe it with initial= and training="
            )
        training = training_of(observation, resources.dtype, resources.device, resources.memory_bytes)
        network, start = training.network, training.start
        end = ends.end.to(start)
        if network.p != len(end) or torch.equal(start, end):
            raise UsageError("expected all weights of a network that was trained, found none that changed, or others")
        unseen = held_out_weights(network, held_out, seed).to(end.device)
        loss = ReplayLoss(
            training,
            end,
            scales(network, end - start).masked_fill(unseen, 0),
            seen_columns(network, end - start, unseen),
            recipe.labels is not None,
        )
        labels = None if recipe.labels is None else _targets(recipe, network).to(end)
        facts = {"recipe": recipe.described, "labels_known": labels is not None}
        return cls(observation, ReplayProblem(loss, labels, seed), unseen, facts)

    @property
    def given(self) -> Given:
        recipe = self.observation.recipe
        assert recipe is not None
        given: Given = {"weights": f"{len(self.unseen):,} numbers of all layers", "initial": "known"}
        given |= {"body": "all of them", "recipe": recipe.described, **of_the_samples(self.observation)}
        return given if recipe.labels is None else given | {"labels": "of all samples"}

    @property
    def held_out(self) -> HeldOut:
        return HeldOut("weights of units of the first layer", self.unseen.nonzero()[:, 0].cpu())

    def lift(self, candidates: Float[Tensor, "m c"]) -> Float[Tensor, "m d"]:
        return candidates[:, : self.problem.loss.training.network.d]

    def guess(self, candidates: Float[Tensor, "m c"]) -> Guess:
        d = self.problem.loss.training.network.d
        return Guess(candidates[:, :d].contiguous(), candidates[:, d:].contiguous())

    def unseen_loss(self, candidates: Float[Tensor, "m c"]) -> float | None:
        return self._left(self.guess(candidates))[1] if bool(self.unseen.any()) else None

    def judge(self, candidates: Float[Tensor, "m c"]) -> Judgement:
        guess = self.guess(candidates)
        fitted, unseen = self._left(guess)
        if unseen is None:
            return Judgement(fitted, guess.targets, unjudged(len(candidates)))
        held, m = int(self.unseen.sum()), len(candidates)
        if unseen > EXPLAINED**2:
            refuted = fitted <= EXPLAINED**2
            outcome = Outcome.SPURIOUS if refuted else Outcome.NOT_CONVERGED
            return Judgement(fitted, guess.targets, Certificate(outcome, unseen, held, (0.0,) * m))
        errors = expected_errors(self.problem.loss, guess, max(unseen, fitted))
        confidence = tuple((1 / (1 + (errors / EXACT).square())).tolist())
        trusted = [one >= 0.5 for one in confidence]
        outcome = Outcome.RECOVERED if all(trusted) else Outcome.PARTIAL if any(trusted) else Outcome.NOT_CONVERGED
        worst = float(errors.max())
        facts: Facts = {"expected_error_of_the_worst": worst} if worst < torch.inf else {}
        return Judgement(fitted, guess.targets, Certificate(outcome, unseen, held, confidence), facts)

    def _left(self, guess: Guess) -> tuple[float, float | None]:
        """The squared share of the change that is left, of fitted weights and of held-out ones."""
        loss = self.problem.loss
        end = loss.training.end(guess.inputs, guess.targets)
        scale = scales(loss.training.network, loss.end - loss.training.start)
        left, whole = ((loss.end - end) * scale).double(), ((loss.end - loss.training.start) * scale).double()
        seen = ~self.unseen
        fitted = float(left[seen].square().sum() / whole[seen].square().sum())
        size = float(whole[self.unseen].square().sum())
        return fitted, float(left[self.unseen].square().sum()) / size if size > 0 else None


def training_of(
    observation: Observation, dtype: torch.dtype, device: torch.device, memory_bytes: int | None = None
) -> Training:
    ends, recipe = observation.ends, observation.recipe
    assert ends is not None
    assert recipe is not None
    room = torch.inf if memory_bytes is None else memory_bytes - PROCESS_BYTES
    network = dense_network(ends.trained, recipe.loss)
    return Training(network, recipe, ends.start.to(device, dtype), _count(observation, recipe), room)


def expected_errors(loss: ReplayLoss, guess: Guess, left: float) -> Float[Tensor, " n"]:
    """The error to expect of each candidate over its norm, where `left` is the squared share that is unexplained.

    Infinite where the Jacobian does not fit into memory: nobody is called then."""
    network, columns = loss.training.network, loss.seen.nonzero()[:, 0]
    used, n = loss.scale > 0, len(guess.inputs)
    of_targets = 0 if loss.labels_known else network.outputs
    unknowns, equations = n * (len(columns) + of_targets), int(used.sum())
    if 8 * unknowns * (equations + SQUARES * unknowns) > min(loss.training.memory, memory_bytes() / 3):
        return torch.full((n,), torch.inf, dtype=torch.float64)
    point = loss.training.linearise(guess.inputs, guess.targets, Smoothing.none(network))
    jacobian = torch.empty(unknowns, equations, dtype=torch.float64)
    still = torch.zeros_like(guess.targets)
    for i in range(n):
        for j in range(len(columns) + of_targets):
            direction, labels = torch.zeros_like(guess.inputs), still
            if j < len(columns):
                direction[i, columns[j]] = 1
            else:
                labels = still.clone()
                labels[i, j - len(columns)] = 1
            pushed = point.push(direction, labels if of_targets else None) * loss.scale
            jacobian[i * (len(columns) + of_targets) + j] = pushed[used].double().cpu()
    noise = left * loss.size**2 / max(equations - unknowns, 1)
    gram = jacobian @ jacobian.T
    values, vectors = torch.linalg.eigh(gram)
    rounding = torch.finfo(guess.inputs.dtype).eps ** 2 * float(values.max())  # squares, of a Jacobian to rounding
    scatter = vectors.square() @ (noise / values.clamp_min(1e-300))
    scatter = torch.where((vectors.square() @ (values <= rounding).double()) > EXACT**2, torch.inf, scatter)
    squares = scatter.reshape(n, -1)[:, : len(columns)].sum(dim=1)
    return (squares.sqrt() / guess.inputs.norm(dim=1).double().cpu().clamp_min(1e-300)).nan_to_num(torch.inf)


def held_out_weights(network: DenseNetwork, share: float, seed: int) -> Bool[Tensor, " p"]:
    """All weights into and out of some units of the first layer; none where nothing is to be held out."""
    require_share(share)
    unseen = torch.zeros(network.p, dtype=torch.bool)
    if share == 0 or len(network.layers) < 2:
        return unseen
    first, second = network.layers[:2]
    count = min(max(1, round(max(share, HELD_OUT) * first.outputs)), first.outputs - 1)
    units = torch.randperm(first.outputs, generator=seeds.generator(seed, "held-out"))[:count]
    into, bias = first.split(unseen)
    into[units] = True
    if bias is not None:
        bias[units] = True
    second.split(unseen)[0][:, units] = True
    return unseen


def scales(network: DenseNetwork, change: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """The inverse root mean square of each parameter's change, 0 for one that did not change."""
    found = torch.zeros_like(change)
    for part in network.parts():
        size = float(change[part].square().mean().sqrt())
        found[part] = 1 / size if size > 0 else 0
    return found


def seen_columns(network: DenseNetwork, change: Float[Tensor, " p"], unseen: Bool[Tensor, " p"]) -> Bool[Tensor, " d"]:
    """Inputs that moved a weight of the first layer. Without decay, one that is zero in all samples moves none."""
    return (network.layers[0].split(change.masked_fill(unseen, 0))[0] != 0).any(dim=0)


def _count(observation: Observation, recipe: Recipe) -> int:
    known_count, labels = observation.knowledge.samples, recipe.labels
    if labels is None:
        if known_count is None:
            raise UsageError("expected the number of samples for --method replay, found none; give --samples or labels")
        return known_count
    if known_count not in (None, len(labels)):
        raise UsageError(f"expected one label per sample ({known_count}), found {len(labels)} in the recipe")
    return len(labels)


def _targets(recipe: Recipe, network: DenseNetwork) -> Float[Tensor, "n k"]:
    assert recipe.labels is not None
    if max(recipe.labels) >= network.outputs:
        raise UsageError(f"expected labels below {network.outputs}, the outputs, found {max(recipe.labels)}")
    return torch.nn.functional.one_hot(torch.tensor(recipe.labels), network.outputs).float()
