import dataclasses
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from exhume.activations import ACTIVATIONS, MAX_HERMITE_ORDER, Activation, activation, hermite_coefficients
from exhume.errors import UsageError

ORDER = 24
EVERY = pytest.mark.parametrize("act", ACTIVATIONS.all().values(), ids=lambda act: act.name)


def grid() -> torch.Tensor:
    """Points on both sides of the kinks at 0 and 6, and not at them."""
    return torch.linspace(-9, 9, 240, dtype=torch.float64)


def double_factorial(k: int) -> int:
    return math.prod(range(k, 0, -2))


@EVERY
def test_derivative_agrees_with_autograd(act: Activation) -> None:
    z = grid().requires_grad_()
    (expected,) = torch.autograd.grad(act.value(z).sum(), z)
    torch.testing.assert_close(act.derivative(z).detach(), expected, rtol=1e-12, atol=1e-15)


@EVERY
def test_derivative_agrees_with_finite_differences(act: Activation) -> None:
    z, h = grid(), 1e-5
    expected = (act.value(z + h) - act.value(z - h)) / (2 * h)
    torch.testing.assert_close(act.derivative(z), expected, rtol=1e-8, atol=1e-9)


@EVERY
def test_derivative_can_be_differentiated_or_is_piecewise_constant(act: Activation) -> None:
    z, h = grid().requires_grad_(), 1e-5
    slope = act.derivative(z)
    expected = (act.derivative(z.detach() + h) - act.derivative(z.detach() - h)) / (2 * h)
    second = torch.autograd.grad(slope.sum(), z)[0] if slope.requires_grad else torch.zeros_like(z)
    torch.testing.assert_close(second, expected, rtol=1e-7, atol=1e-9)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_path_without_gradients_is_the_same_and_leaves_the_input_alone(act: Activation, dtype: torch.dtype) -> None:
    z = grid().to(dtype)
    before = z.clone()
    recorded = act.value(z), act.derivative(z)
    with torch.no_grad():
        silent = act.value(z), act.derivative(z)
    for a, b in zip(recorded, silent, strict=True):
        assert a.dtype == b.dtype == dtype
        torch.testing.assert_close(a, b)
        b.zero_()
    torch.testing.assert_close(z, before, rtol=0, atol=0)


@EVERY
def test_extreme_inputs_stay_finite(act: Activation) -> None:
    z = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4])
    assert act.value(z).isfinite().all()
    assert act.derivative(z).isfinite().all()


def test_softplus_is_exact_beyond_the_usual_threshold() -> None:
    z = torch.tensor([21.0, 30.0], dtype=torch.float64)
    excess = activation("softplus").value(z) - z
    assert_allclose(excess.numpy(), np.exp(-z.numpy()), rtol=1e-4, atol=5e-15)


@EVERY
def test_flags_say_what_the_function_does(act: Activation) -> None:
    z = grid()
    odd_part = (act.value(z) - act.value(-z)) / 2
    even_part = (act.value(z) + act.value(-z)) / 2
    is_zero = {"odd": odd_part.abs().max() < 1e-12, "even": even_part.abs().max() < 1e-12}
    parity = "odd" if is_zero["even"] else "even" if is_zero["odd"] else "none"
    assert act.parity == parity
    ratio = odd_part / z
    assert act.linear_plus_even == (bool((ratio - ratio[0]).abs().max() < 1e-12) and not is_zero["even"])
    assert act.homogeneous == torch.allclose(act.value(3 * z), 3 * act.value(z))


def test_only_relu_and_what_contains_it_have_a_kink() -> None:
    kinked = [name for name, act in ACTIVATIONS.all().items() if act.kinked]
    assert kinked == ["relu", "relu+tanh", "leaky_relu", "relu6"]


def test_a_rectifier_and_homogeneity_are_not_read_off_one_half_of_the_values() -> None:
    """ELU is the identity above zero, ReLU6 is ReLU below six."""
    known = ACTIVATIONS.all()
    assert [name for name, act in known.items() if act.rectifier] == ["relu"]
    assert [name for name, act in known.items() if act.homogeneous] == ["relu", "linear", "leaky_relu"]
    assert [name for name, act in known.items() if act.silent_below_zero] == ["relu", "relu6"]
    assert activation("leaky_relu").linear_plus_even
    assert activation("silu").linear_plus_even
    assert not activation("relu6").linear_plus_even


def test_weights_do_not_change_when_an_odd_sample_and_its_coefficient_flip() -> None:
    z = grid()
    for name in ("tanh", "erf", "linear"):
        act = activation(name)
        torch.testing.assert_close(-act.value(-z), act.value(z))
        assert act.signs.startswith("not identifiable")


def test_sigmoid_flip_shifts_the_weights_by_the_coefficient() -> None:
    z, sigmoid = grid(), activation("sigmoid")
    torch.testing.assert_close(-0.7 * sigmoid.value(-z), 0.7 * sigmoid.value(z) - 0.7)
    assert "constant" in sigmoid.signs


@pytest.mark.parametrize("name", ["relu", "gelu", "softplus"])
def test_signs_come_back_from_the_regression_that_the_sentence_names(name: str) -> None:
    act = activation(name)
    assert "linear part" in act.signs
    generator = torch.Generator().manual_seed(0)
    n, d, p = 5, 6, 400
    rows = torch.randn(n, d, generator=generator, dtype=torch.float64)
    v = torch.randn(p, d, generator=generator, dtype=torch.float64)
    alpha = torch.tensor([1.0, -0.5, 2.0, -1.5, 0.7], dtype=torch.float64)
    truth = torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    theta = act.value(v @ (truth[:, None] * rows).T) @ alpha
    even = (act.value(v @ rows.T) + act.value(-v @ rows.T)) / 2
    solution = torch.linalg.lstsq(torch.cat([even, v], dim=1), theta).solution
    linear = torch.linalg.lstsq(rows.T, solution[n:]).solution
    assert torch.equal(torch.sign(linear / solution[:n]), truth)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"relu, tanh, relu\+tanh.*found 'swish'"):
        activation("swish")


def test_the_register_is_keyed_by_name_and_nothing_in_it_is_replaced() -> None:
    assert all(name == member.name for name, member in ACTIVATIONS.all().items())
    with pytest.raises(UsageError, match="found 'relu', which is taken"):
        ACTIVATIONS.add(Activation.of("relu", torch.tanh))


def test_relu_coefficients_have_their_closed_form_at_all_orders() -> None:
    expected = [1 / math.sqrt(2 * math.pi), 0.5]
    for k in range(MAX_HERMITE_ORDER // 2):
        expected += [(-1) ** k * double_factorial(2 * k - 1) / math.sqrt(2 * math.pi), 0.0]
    closed = np.array(expected[: MAX_HERMITE_ORDER + 1])
    scale = np.array([math.exp(math.lgamma(degree + 1) / 2) for degree in range(MAX_HERMITE_ORDER + 1)])
    found = hermite_coefficients(activation("relu"), MAX_HERMITE_ORDER)
    assert_allclose(found / scale, closed / scale, rtol=0, atol=1e-12)
    assert_allclose(found[:11], closed[:11], rtol=1e-10, atol=1e-10)


def test_linear_coefficients_are_those_of_he_1() -> None:
    expected = np.eye(ORDER + 1)[1]
    assert_allclose(hermite_coefficients(activation("linear"), ORDER, normalised=True), expected, rtol=0, atol=1e-13)


def test_erf_coefficients_have_their_closed_form() -> None:
    expected = np.zeros(ORDER + 1)
    for k in range(ORDER // 2):
        expected[2 * k + 1] = 2 / math.sqrt(3 * math.pi) * (-1 / 3) ** k * math.factorial(2 * k) / math.factorial(k)
    expected /= [math.sqrt(math.factorial(degree)) for degree in range(ORDER + 1)]
    assert_allclose(hermite_coefficients(activation("erf"), ORDER, normalised=True), expected, rtol=0, atol=1e-13)


def test_coefficients_of_a_sum_are_the_sum() -> None:
    relu, tanh, both = (hermite_coefficients(activation(a), ORDER, True) for a in ("relu", "tanh", "relu+tanh"))
    assert_allclose(both, relu + tanh, rtol=0, atol=1e-13)
    assert abs(both[3]) > 0.01
    assert abs(both[4]) > 0.01


def test_sigmoid_is_a_half_plus_an_odd_function() -> None:
    found = hermite_coefficients(activation("sigmoid"), ORDER, normalised=True)
    assert_allclose(found[::2], np.eye(ORDER // 2 + 1)[0] / 2, rtol=0, atol=1e-13)
    assert np.abs(found[1::2]).min() > 1e-10


@pytest.mark.parametrize("name", ["relu", "gelu", "softplus"])
def test_linear_plus_even_has_no_odd_coefficient_beyond_the_first(name: str) -> None:
    found = hermite_coefficients(activation(name), ORDER, normalised=True)
    assert found[1] == pytest.approx(0.5, abs=1e-13)
    assert_allclose(found[3::2], 0, rtol=0, atol=1e-13)


@EVERY
def test_coefficients_of_the_derivative_move_up_by_one_order(act: Activation) -> None:
    """Stein's lemma, E[φ′ He_l] = E[φ He_(l+1)]; a wrong derivative or quadrature breaks it."""
    slope = dataclasses.replace(act, value=act.derivative)
    shifted = hermite_coefficients(act, ORDER + 1, normalised=True)[1:] * np.sqrt(np.arange(1, ORDER + 2))
    assert_allclose(hermite_coefficients(slope, ORDER, normalised=True), shifted, rtol=0, atol=1e-12)


def test_squares_of_the_normalised_coefficients_add_up_to_the_second_moment() -> None:
    found = hermite_coefficients(activation("gelu"), 120, normalised=True)
    gelu = dataclasses.replace(activation("gelu"), value=lambda z: activation("gelu").value(z).square())
    assert (found**2).sum() == pytest.approx(hermite_coefficients(gelu, 0)[0], rel=1e-9)


@pytest.mark.parametrize("order", [-1, MAX_HERMITE_ORDER + 1])
def test_order_out_of_range_is_refused(order: int) -> None:
    with pytest.raises(UsageError, match=f"from 0 to {MAX_HERMITE_ORDER}, found {order}"):
        hermite_coefficients(activation("relu"), order)
