"""Which method to run on an observation, and what it is told."""

from exhume.attacks.heavy_ball import HeavyBall
from exhume.attacks.module_newton import ModuleNewton
from exhume.attacks.problem import Method
from exhume.attacks.split_newton import SplitNewton
from exhume.errors import UsageError
from exhume.observation import Observation

METHODS = ("auto", "split-newton", "heavy-ball", "module-newton")


def choose_method(
    name: str,
    *,
    network: bool = False,
    step_size: float | None = None,
    inactive_slope: float = 0.0,
    iterations: int | None = None,
    exact: bool = False,
) -> Method:
    """The method of that name; options that it does not have are refused rather than ignored.

    `network`: what is attacked are the penultimate features of a network; "auto" depends on it.
    """
    if name not in METHODS:
        raise UsageError(f"expected a method out of {', '.join(METHODS)}, found {name!r}")
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


def tell(observation: Observation, method: Method, samples: int | None) -> Observation:
    """The observation as this method may see it: the number of samples is withheld unless the method needs it."""
    if samples is None and method.needs_samples:
        return observation
    return observation.told(samples)
