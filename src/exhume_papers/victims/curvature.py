"""The largest curvature of a loss in the weights of a module, from products with the Gauss-Newton matrix alone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from exhume.errors import UsageError
from exhume_papers.networks.derivatives import push_forward
from exhume_papers.victims.losses import Loss

TOLERANCE = 1e-2
FEWEST_PRODUCTS = 10  # a start that lies near another eigenvector looks settled at first
MOST_PRODUCTS = 60


def module_curvature(model: nn.Module, inputs: Tensor, loss: Loss) -> float:
    """The largest eigenvalue of Rᵀ J Jᵀ R in the parameters that require a gradient.

    J Jᵀ is a pull back and a push forward through the module.
    """
    weights = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def outputs_at(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (inputs,))

    try:
        outputs, pull_back, *_ = torch.func.vjp(outputs_at, weights)
        outputs = outputs.detach()

        def product(vector: Tensor) -> Tensor:
            (direction,) = pull_back(loss.root(outputs, vector, transposed=False))
            moved = push_forward(outputs_at, weights, direction)
            return loss.root(outputs, moved.detach(), transposed=True)

        return largest_eigenvalue(product, outputs)
    except (RuntimeError, NotImplementedError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise UsageError(
            f"expected a model whose curvature can be measured, found: {reason}; give a step size"
        ) from problem


def largest_eigenvalue(product: Callable[[Tensor], Tensor], like: Tensor) -> float:
    """The largest eigenvalue of a symmetric positive matrix that is known by its products only.

    Lanczos with full reorthogonalisation from a fixed random start; `like` has the shape of the vectors.

    Ends when the residual of the largest Ritz pair, ||A y − ρ y|| for ||y|| = 1, is a hundredth of ρ: there is an
    eigenvalue within that distance.
    """
    stream = torch.Generator().manual_seed(0)
    vector = torch.randn(like.shape, generator=stream).to(like)
    basis = [vector / vector.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    largest = 0.0
    for _ in range(min(MOST_PRODUCTS, like.numel())):
        image = product(basis[-1])
        diagonal.append(float((image * basis[-1]).sum()))
        for _ in range(2):  # twice is enough
            for known in basis:
                image = image - (image * known).sum() * known
        off = torch.tensor(beside, dtype=torch.float64)
        tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + _beside(off, len(diagonal))
        values, vectors = torch.linalg.eigh(tridiagonal)
        largest, length = float(values[-1]), float(image.norm())
        residual = length * abs(float(vectors[-1, -1]))
        settled = len(diagonal) >= FEWEST_PRODUCTS and residual <= TOLERANCE * largest
        if settled or not length > 1e-10 * largest:
            break
        beside.append(length)
        basis.append(image / length)
    return largest


def _beside(off: Tensor, size: int) -> Tensor:
    """A symmetric matrix with these numbers above and below its diagonal."""
    matrix = torch.zeros(size, size, dtype=off.dtype)
    if size > 1:
        matrix += torch.diag(off, 1) + torch.diag(off, -1)
    return matrix
