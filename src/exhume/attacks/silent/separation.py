"""Pictures told apart inside their own span, without any unit: independent components of their edges.

A mixture of photographs has edges everywhere, a photograph has few: of all pictures in the span, the training images
are those whose second differences s are sparsest. All components together, with k differences at each of p places:

    min over A of  Σ_i Σ_places (ν + k)/2 log(1 + |s_i|² / (ν w)) − k p log |det A|,    s_i = (A · edges of the span)_i,

the likelihood of a Student distribution for each place, with components brought to mean square 1. The k differences of
a place share one scale: where one is large the others may be, too. First Newton's fixed point with a sigmoid
(Hyvärinen), then L-BFGS on the likelihood. Nothing but the span is used, so it works for any activation and any average
of gradients. It is a start, good to some ten per cent: the silent units of the layer make it exact.
"""

import torch
from jaxtyping import Float
from torch import Tensor

NU, WIDTH = 1.0, 0.1  # a Student distribution as heavy as Cauchy's; from 0.5 to 3, and 0.1 to 0.3, they differ little
SLOPE = 3.0  # of the sigmoid
LEAST_TURNS, TURNS = 15, 200
STANDS = 3e-5  # 1 - |cosine| of half of the components from turn to turn
STEPS = 100


def separated(edges: Float[Tensor, "r k p"], stream: torch.Generator) -> Float[Tensor, "r r"]:
    """A: its rows combine the rows of `edges` to one picture each. In single precision."""
    flat = edges.flatten(1).float()
    whitening, white = _white(flat - flat.mean(dim=1, keepdim=True))
    begin = torch.linalg.qr(torch.randn(len(flat), len(flat), generator=stream))[0].to(flat)
    turned = _fixed_point(white, begin)
    return (_likeliest(turned @ white, edges.shape[1]) @ turned @ whitening).to(edges)


def unmixed(edges: Float[Tensor, "m k p"], others: Float[Tensor, "f k p"]) -> Float[Tensor, "m f"]:
    """T: row i of `edges` plus T_i combinations of `others` is the sparsest picture. In single precision.

    For pictures that are known but for their share of others."""
    flat, rest = edges.flatten(1).float(), others.flatten(1).float()
    own, scales = (rows.square().mean(dim=1, keepdim=True).sqrt() for rows in (flat, rest))
    flat, rest = flat / own, rest / scales
    share = torch.zeros(len(flat), len(rest), dtype=flat.dtype, device=flat.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([share], max_iter=STEPS, history_size=15, line_search_fn="strong_wolfe")

    def loss() -> Float[Tensor, ""]:
        with torch.enable_grad():
            value, size = sparseness(flat + share @ rest, edges.shape[1])
            value = value / flat.shape[1] + torch.log(size).sum()
            share.grad = torch.autograd.grad(value, share)[0].contiguous()
        return value.detach()

    optimiser.step(loss)
    return (share.detach() * own / scales.T).to(edges)


def sparseness(components: Float[Tensor, "r n"], per_place: int) -> tuple[Float[Tensor, ""], Float[Tensor, "r 1"]]:
    """The sum in the likelihood without its determinant, at mean square 1; and the root mean squares divided by."""
    size = components.square().mean(dim=1, keepdim=True).sqrt()
    energy = (components / size).view(len(components), per_place, -1).square().sum(dim=1)
    return (NU + per_place) / 2 * torch.log1p(energy / (NU * WIDTH)).sum(), size


def _white(values: Float[Tensor, "r n"]) -> tuple[Float[Tensor, "r r"], Float[Tensor, "r n"]]:
    energies, axes = torch.linalg.eigh((values @ values.T / values.shape[1]).double())
    floor = 1e-12 * energies[-1] + torch.finfo(energies.dtype).tiny
    whitening = ((axes / energies.clamp_min(floor).sqrt()) @ axes.T).to(values)
    return whitening, whitening @ values


def _fixed_point(white: Float[Tensor, "r n"], turned: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    """All components at once, made orthonormal after each turn."""
    for turn in range(TURNS):
        bent = torch.tanh(SLOPE * (turned @ white))
        fresh = bent @ white.T / white.shape[1] - SLOPE * (1 - bent.square().mean(dim=1, keepdim=True)) * turned
        left, _, right = torch.linalg.svd(fresh.double())
        fresh = (left @ right).to(turned)
        moved = 1 - (fresh * turned).sum(dim=1).abs()
        turned = fresh
        if turn >= LEAST_TURNS and float(moved.median()) < STANDS:
            break
    return turned


def _likeliest(begin: Float[Tensor, "r n"], per_place: int) -> Float[Tensor, "r r"]:
    """I + E with the likeliest (I + E) · begin."""
    eye = torch.eye(len(begin), dtype=begin.dtype, device=begin.device)
    change = torch.zeros_like(eye, requires_grad=True)
    optimiser = torch.optim.LBFGS([change], max_iter=STEPS, history_size=15, line_search_fn="strong_wolfe")

    def loss() -> Float[Tensor, ""]:
        with torch.enable_grad():
            value, size = sparseness((eye + change) @ begin, per_place)
            value = value / begin.shape[1] - torch.linalg.slogdet((eye + change) / size)[1]
            change.grad = torch.autograd.grad(value, change)[0].contiguous()
        return value.detach()

    optimiser.step(loss)
    return (eye + change).detach()
