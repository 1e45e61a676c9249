from width_study import AngleTrial, MomentTrial, WidthTrial

from exhume_papers.victims.recipe import DescentRecipe


def test_a_known_subspace_is_enough_at_a_width_below_the_threshold() -> None:
    """r is that of the subspace, also where there are fewer samples, which span less of it."""
    assert WidthTrial(dimension=4, ambient=30, samples=3, width=60, known=True, seed=0).run() < 0.01
    few = WidthTrial(dimension=12, ambient=30, samples=2, width=16, known=True, seed=0)  # r n = 24
    assert few.run() > 0.1


def test_the_angle_is_small_after_descent_and_large_after_adam() -> None:
    angle, exact = AngleTrial(3, 20, 4, 40, DescentRecipe(steps=50), 0).run()
    assert exact
    assert angle < 1e-4
    angle, exact = AngleTrial(3, 20, 4, 40, DescentRecipe(method="adam", steps=50), 0).run()
    assert not exact
    assert angle > 1e-2


def test_more_directions_capture_more() -> None:
    few, many = (MomentTrial(20, 3, 600, count, 0).run() for count in (2, 12))
    assert few < many <= 1
