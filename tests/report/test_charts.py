from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.report.charts import gauge_chart, loss_chart
from exhume.theory import gauge

SIZES = st.integers(1, 10**7)


@given(SIZES, SIZES, SIZES)
def test_the_marker_stands_in_the_band_of_the_models_zone(p: int, d: int, n: int) -> None:
    zone = gauge(p, d, n).zone
    chart = gauge_chart({"p": p, "d": d, "n": n, "zone": zone})
    assert chart is not None
    here = [band for band in chart["bands"] if band["here"]]
    assert [band["zone"] for band in here] == [zone]
    rounding = 2e-3
    assert here[0]["x"] - rounding <= chart["marker"]["x"] <= here[0]["x"] + here[0]["width"] + rounding
    assert sum(band["width"] for band in chart["bands"]) + rounding > 100
    assert all(0 <= mark["x"] <= 100 for mark in (*chart["thresholds"], chart["marker"]))


def test_without_a_number_of_samples_there_is_no_gauge_to_draw() -> None:
    assert gauge_chart({"p": 10, "d": 2, "n": None, "zone": "unknown"}) is None


@settings(max_examples=40)
@given(
    st.lists(st.floats(0, 1e3), min_size=2, max_size=50),
    st.none() | st.floats(0, 1e3),
    st.integers(0, 10**6),
    st.integers(1, 1000),
)
def test_the_curve_stays_inside_its_square_and_lower_losses_are_lower(
    losses: list[float], held_out: float | None, first: int, stride: int
) -> None:
    trace = [{"iteration": float(first + stride * i), "loss": loss} for i, loss in enumerate(losses)]
    chart = loss_chart(trace, held_out)
    assert chart is not None
    points = [tuple(map(float, point.split(","))) for point in chart["points"].split()]
    assert all(0 <= coordinate <= 1000 for point in points for coordinate in point)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    depths = [y for _, y in points]
    for loss, depth in zip(losses, depths, strict=True):
        assert all(depth <= other for other_loss, other in zip(losses, depths, strict=True) if other_loss < loss)
    assert (chart["held_out"] is None) == (held_out is None)
    assert 2 <= len(chart["y_ticks"]) <= 7
    assert len(chart["x_ticks"]) <= 6


def test_one_point_makes_no_curve() -> None:
    assert loss_chart([], None) is None
    assert loss_chart([{"iteration": 0.0, "loss": 1.0}], None) is None
