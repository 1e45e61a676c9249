import pytest

from exhume.errors import UsageError
from exhume_papers.victims.recipe import Descent, DescentRecipe


def test_mini_batches_are_for_sgd_and_adam() -> None:
    assert DescentRecipe().batch(10) is None
    assert DescentRecipe(method="sgd").batch(10) == 5
    assert DescentRecipe(method="sgd").batch(1000) == 32
    assert DescentRecipe(method="sgd", batch_size=10).batch(10) is None
    assert DescentRecipe(method="adam", batch_size=3).batch(10) == 3
    assert DescentRecipe(method="adam").batch(10) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"batch_size": 3}, "no batch size with gd"),
        ({"method": "adam", "momentum": 0.9}, "no momentum with adam"),
        ({"method": "lbfgs"}, "'gd', 'sgd', 'adam' or 'closed-form', found 'lbfgs'"),
        ({"momentum": 1.0}, "momentum to be less than 1"),
        ({"step_size": 0.0}, "step_size to be greater than 0"),
        ({"steps": 0}, "steps to be greater than or equal to 1"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"speed": 1}, "found 'speed'"),
    ],
)
def test_numbers_that_make_no_sense_are_one_line(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as problem:
        DescentRecipe.parse(**fields)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_only_plain_gradient_descent_has_to_lower_the_loss_at_each_step() -> None:
    assert DescentRecipe().monotone
    for recipe in (
        DescentRecipe(momentum=0.5),
        DescentRecipe(weight_decay=0.1),
        DescentRecipe(method="sgd"),
        DescentRecipe(method="adam"),
    ):
        assert not recipe.monotone


def test_the_way_is_told_in_one_sentence() -> None:
    went = Descent(1.23e-9, 74, 0.00198, "target", 506.0, 0, ())
    assert went.describe() == "loss 1.2e-09 after 74 steps of 0.00198 (largest curvature 506)"
    lowered = Descent(0.5, 9, 0.1, "steps", None, 2, ())
    assert lowered.describe() == (
        "loss 0.5 after 9 steps of 0.1, halved 2 times because the loss rose; it stopped at the number of steps"
    )
