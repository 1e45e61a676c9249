"""Which method to run on an observation, and what it is told."""

from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.informed.attack import InformedAttack
from exhume.attacks.modules.newton import ModuleNewton
from exhume.attacks.modules.tangent import ModuleTangentAttack
from exhume.attacks.problem import Method
from exhume.attacks.ridge.split_newton import SplitNewton
from exhume.attacks.silent.attack import SilentUnits
from exhume.attacks.subspace.attack import Source, SubspaceAttack
from exhume.attacks.tangent.newton import KktAttack, NtkAttack, TangentAttack
from exhume.errors import UsageError
from exhume.observation import Observation

GRADIENTS = {"halfway": 0.5, "trained": 0.0, "initial": 1.0}
"""How far back from the trained weights to the initial ones."""
RULES = ("free", "margin")
RIDGE_METHODS = ("auto", "split-newton", "heavy-ball", "subspace")
"""Those that a network whose features are φ(Wx + b) can be attacked by, and should."""
METHODS = ("auto", "split-newton", "heavy-ball", "module-newton", "subspace", "ntk", "kkt", "informed", "silent-units")


def choose_method(
    name: str,
    *,
    network: bool = False,
    known: Source | None = None,
    subspace: Source | None = None,
    step_size: float | None = None,
    inactive_slope: float = 0.0,
    iterations: int | None = None,
    exact: bool = False,
    gradients_at: str | None = None,
    rule: str | None = None,
) -> Method:
    """The method of that name; options that it does not have are refused rather than ignored.

    `network`: what is attacked are the penultimate features of a network; "auto" depends on it. `known`: where a
    subspace of the data can be had from (`known_subspace`), which "auto" makes use of. `subspace`: where it is to come
    from, with any method for features of random rows; "given" also with those that attack all layers.
    """
    if name not in METHODS:
        raise UsageError(f"expected a method out of {', '.join(METHODS)}, found {name!r}")
    for option, value, owner in (("--gradients-at", gradients_at, "ntk"), ("--rule", rule, "kkt")):
        if value is not None and name != owner:
            raise UsageError(f"expected {option} with --method {owner}, found {name}; leave it out")
    if name == "silent-units":
        if step_size is not None or inactive_slope != 0 or exact or subspace is not None:
            raise UsageError("expected no --step, --inactive-slope, --exact or --subspace with silent-units, found one")
        return SilentUnits() if iterations is None else SilentUnits(iterations)
    if name in ("ntk", "kkt", "informed"):
        if step_size is not None or inactive_slope != 0 or exact:
            raise UsageError(f"expected no --step, --inactive-slope or --exact with {name}, found one")
        if subspace is not None and (subspace != "given" or name == "informed" or network):
            raise UsageError(
                f"expected no --subspace with {name}, found {subspace!r}; ntk and kkt take a FILE with a two-layer "
                "network, and look at its first layer by themselves"
            )
        return _of_all_weights(name, network, iterations, gradients_at, rule)
    if network and (subspace is not None or name == "subspace"):
        raise UsageError("expected no subspace with a network, whose first layer is not that of the features; leave it")
    source = subspace or (known if name in ("auto", "subspace") else None)
    if name == "subspace" and source is None:
        raise UsageError(
            "expected a subspace, found an observation that knows none; give --subspace moments or FILE, or train with "
            "--knows-first-layer"
        )
    if source is not None and not network:
        inner = choose_method(
            "split-newton" if name in ("auto", "subspace") else name,
            step_size=step_size,
            inactive_slope=inactive_slope,
            iterations=iterations,
            exact=exact,
        )
        return SubspaceAttack(source, inner, insist=name == "subspace" or subspace is not None)
    if name == "module-newton" or (network and name == "auto"):
        if step_size is not None or inactive_slope != 0 or exact:
            raise UsageError("expected no --step, --inactive-slope or --exact with a network, found one; leave it out")
        return ModuleNewton(iterations=ModuleNewton.iterations if iterations is None else iterations)
    if name == "heavy-ball":
        if exact:
            raise UsageError("expected --exact with --method split-newton, found heavy-ball")
        limit = HeavyBall.iterations if iterations is None else iterations
        return HeavyBall(step_size=step_size, inactive_slope=inactive_slope, iterations=limit)
    if step_size is not None or inactive_slope != 0:
        raise UsageError("expected --step and --inactive-slope with --method heavy-ball, found split-newton")
    return SplitNewton(iterations=SplitNewton.iterations if iterations is None else iterations, exact=exact)


def _of_all_weights(
    name: str, network: bool, iterations: int | None, gradients_at: str | None, rule: str | None
) -> Method:
    """The attacks that need more than the last layer, or more than weights."""
    if name == "informed":
        return InformedAttack() if iterations is None else InformedAttack(iterations)
    if gradients_at not in (None, *GRADIENTS):
        raise UsageError(f"expected gradients at {', '.join(GRADIENTS)}, found {gradients_at!r}")
    if rule not in (None, *RULES):
        raise UsageError(f"expected a rule out of {', '.join(RULES)}, found {rule!r}")
    if name == "ntk" and network:
        if gradients_at is not None:
            raise UsageError("expected no --gradients-at with a network, whose gradients are taken halfway")
        return ModuleTangentAttack(ModuleNewton() if iterations is None else ModuleNewton(iterations))
    limit = TangentAttack.iterations if iterations is None else iterations
    if name == "ntk":
        return NtkAttack(limit, back=GRADIENTS[gradients_at or "halfway"])
    return KktAttack(limit, rule="margin" if rule == "margin" else "free")


def known_subspace(observation: Observation) -> Source | None:
    """Where a subspace of the data can be had from: somebody who knows it, or the first layer's change."""
    if observation.subspace is not None:
        return "given"
    return None if observation.initial_rows is None else "first-layer"


def tell(observation: Observation, method: Method, samples: int | None) -> Observation:
    """The observation as this method may see it: the number of samples is withheld unless the method needs it."""
    if samples is None and method.needs_samples:
        return observation
    return observation.told(samples)
