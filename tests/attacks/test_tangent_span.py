"""The projected loss in its inner products, against the projection itself."""

import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from exhume.activations import activation
from exhume.attacks.tangent.span import TangentSpanLoss
from exhume.errors import ExhumeError
from exhume.features.layered import LayeredNetwork

M, D, H = 3, 4, 9


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(outputs: int = 2, name: str = "gelu") -> LayeredNetwork:
    return LayeredNetwork.measured((draw(H, D), draw(outputs, H, seed=1)), activation(name), norm=2.0)


def target(outputs: int = 2) -> tuple[Tensor, Tensor]:
    return draw(H, D, seed=2), draw(outputs, H, seed=3)


def gradients(net: LayeredNetwork, rows: Tensor) -> Tensor:
    """m k × p, differentiable in the rows."""
    found = net.gradients(rows)
    parts = [
        torch.einsum("mqh,md->mqhd", errors, signal).reshape(len(rows) * net.outputs, -1)
        for signal, errors in zip(found.forward, found.backward, strict=True)
    ]
    return torch.cat(parts, dim=1)


def test_the_loss_and_its_gradient_are_those_of_the_dense_projection() -> None:
    net, targets = network(), target()
    loss = TangentSpanLoss(net, targets)
    rows = draw(M, D, seed=7)
    fit, slope = loss.fit_with_gradient(rows)
    moving = rows.clone().requires_grad_()
    mapped, flat = gradients(net, moving), torch.cat([part.reshape(-1) for part in targets])
    coefficients = torch.linalg.lstsq(mapped.T, flat[:, None]).solution
    naive = (flat - (mapped.T @ coefficients)[:, 0]).square().sum() / flat.square().sum()
    assert fit.loss == pytest.approx(naive.item(), rel=1e-7)
    torch.testing.assert_close(slope, torch.autograd.grad(naive, moving)[0], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(fit.coefficients.reshape(-1), coefficients[:, 0].detach(), rtol=1e-5, atol=1e-7)
    assert loss.passes == 2
    assert loss.equations == H * D + 2 * H


def test_a_layer_without_a_target_and_units_that_are_held_out_are_not_looked_at() -> None:
    net, (first, _), units = network(), target(), torch.tensor([1, 4, 6])
    used = TangentSpanLoss(net, (first, None), units)
    rows = draw(M, D, seed=7)
    mapped = gradients(net, rows)[:, : H * D].reshape(-1, H, D)[:, units].reshape(2 * M, -1)
    left = first[units].reshape(-1)
    coefficients = torch.linalg.lstsq(mapped.T, left[:, None]).solution[:, 0]
    naive = (left - mapped.T @ coefficients).square().sum() / left.square().sum()
    assert used.fit(rows).loss == pytest.approx(naive.item(), rel=1e-6)
    assert used.equations == 3 * D


def test_coefficients_predict_the_units_that_were_kept_aside() -> None:
    net, samples = network(name="relu"), draw(M, D, seed=8)
    coefficients = draw(M, 2, seed=9)
    first = net.gradients(samples).combined(coefficients, None).T @ samples
    used, unseen = torch.arange(6), torch.arange(6, H)
    loss, judge = (TangentSpanLoss(net, (first, None), units) for units in (used, unseen))
    fit = loss.fit(samples)
    assert fit.loss < 1e-9
    assert judge.predict_loss(samples, loss.of_outputs(fit)) < 1e-8
    assert judge.predict_loss(-samples, coefficients) > 0.1


def test_removal_costs_are_what_a_refit_without_the_candidate_costs() -> None:
    loss, rows = TangentSpanLoss(network(), target()), draw(M, D, seed=7)
    fit = loss.fit(rows)
    costs = loss.removal_costs(fit)
    for index in range(M):
        kept = [other for other in range(M) if other != index]
        assert loss.fit(rows[kept]).loss - fit.loss == pytest.approx(float(costs[index]), rel=1e-4)


def test_margins_have_coefficients_that_are_not_negative_and_the_best_such() -> None:
    net, targets, rows = network(3), target(3), draw(M, D, seed=7)
    loss, classes = TangentSpanLoss(net, targets, rule="margin"), torch.tensor([0, 1, 2])
    fit, slope = loss.fit_with_gradient(rows, classes)
    each = gradients(net, rows).reshape(M, 3, -1)
    margins = torch.stack([each[i, i] - each[i, rival] for i in range(3) for rival in range(3) if rival != i])
    flat = torch.cat([part.reshape(-1) for part in targets])
    found, left = nnls(margins.T.numpy(), flat.numpy())
    torch.testing.assert_close(fit.coefficients.reshape(-1), torch.from_numpy(found), rtol=1e-5, atol=1e-6)
    assert fit.loss == pytest.approx(left**2 / float(flat @ flat), rel=1e-6)
    spread = loss.of_outputs(fit)
    torch.testing.assert_close(spread.sum(dim=1), torch.zeros(M, dtype=torch.float64))
    torch.testing.assert_close(spread.diagonal(), fit.coefficients.sum(dim=1))
    moved = rows + 1e-6 * draw(M, D, seed=11)
    change = loss.fit(moved, classes).loss - fit.loss
    assert change == pytest.approx(float((slope * (moved - rows)).sum()), rel=1e-3)


def test_one_output_has_two_classes_by_its_sign() -> None:
    loss = TangentSpanLoss(network(1), target(1), rule="margin")
    fit = loss.fit(draw(M, D, seed=7))
    signs = loss.of_outputs(fit)[:, 0].sign()
    assert all(sign in (0, expected) for sign, expected in zip(signs.tolist(), (1, -1, 1), strict=True))


def test_weights_that_never_moved_are_refused() -> None:
    with pytest.raises(ExhumeError, match="nothing was learned"):
        TangentSpanLoss(network(), (torch.zeros(H, D, dtype=torch.float64), None))


def test_copies_of_a_candidate_do_no_harm() -> None:
    loss, rows = TangentSpanLoss(network(), target()), draw(M, D, seed=7)
    assert loss.fit(torch.cat([rows, rows])).loss == pytest.approx(loss.fit(rows).loss, rel=1e-5)
