"""`exhume width`: the width from which on weights determine the data, by a bound with all its constants."""

from typing import Annotated, ClassVar

from exhume.cli.output import print_json, say
from exhume.requests.request import Option, Request


class WidthRequest(Request):
    command: ClassVar[str] = "width"

    samples: Annotated[int, Option("n, the number of training samples.")]
    dim: Annotated[int, Option("d, the numbers in one training sample.")]
    separation: Annotated[
        float, Option("eta, the least infinite-width loss of candidates that are not close to the data.")
    ]
    subspace: Annotated[int | None, Option("r, where the data are known to lie in a subspace.")] = None
    coefficient_sum: Annotated[float, Option("A: the coefficients' absolute values add up to it.")] = 1.0
    activation_bound: Annotated[float, Option("B, which the activation does not exceed.")] = 1.0
    lipschitz: Annotated[float, Option("L, the steepest slope of the activation.")] = 1.0
    row_norm: Annotated[float, Option("R, which no row of V is longer than.")] = 1.0
    failure_rate: Annotated[float, Option("delta, how often it may fail.")] = 0.05


def width(request: WidthRequest, json: bool) -> None:
    """Say how wide a random features model must be for its weights to determine the data, with all assumptions.

    Example: exhume width --samples 1 --dim 50 --subspace 2 --separation 0.3
    """
    from exhume.errors import UsageError
    from exhume_papers.studies.width_bound import ASSUMPTIONS, WidthBound

    dim, subspace = request.dim, request.subspace
    if subspace is not None and not 1 <= subspace <= dim:
        raise UsageError(f"expected a subspace of 1 to d = {dim} dimensions, found {subspace}")
    bound = WidthBound(
        request.samples,
        dim if subspace is None else subspace,
        request.separation,
        request.coefficient_sum,
        request.activation_bound,
        request.lipschitz,
        request.row_norm,
        request.failure_rate,
    )
    for sentence in bound.explain():
        say(sentence, json)
    if json:
        print_json({"width": bound.width, "derived_here": True, "assumptions": list(ASSUMPTIONS)})
