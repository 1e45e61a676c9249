from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.report.charts import chart_of, error_charts, gauge_chart, loss_charts
from exhume.theory import gauge

SIZES = st.integers(1, 10**7)


@given(SIZES, SIZES, SIZES)
def test_the_marker_stands_in_the_band_of_the_models_zone(p: int, d: int, n: int) -> None:
    zone = gauge(p, d, n).zone
    chart = gauge_chart({"p": p, "d": d, "n": n, "zone": zone})
    here = [band for band in chart["bands"] if band["here"]]
    assert [band["zone"] for band in here] == [zone]
    rounding = 2e-3
    assert here[0]["x"] - rounding <= chart["marker"]["x"] <= here[0]["x"] + here[0]["width"] + rounding
    assert sum(band["width"] for band in chart["bands"]) + rounding > 100
    assert all(0 <= mark["x"] <= 100 for mark in (*chart["thresholds"], chart["marker"]))


@given(SIZES, SIZES)
def test_without_a_number_of_samples_the_zones_of_n_are_drawn_and_none_is_marked(p: int, d: int) -> None:
    chart = gauge_chart({"p": p, "d": d, "n": None, "zone": "unknown"})
    assert chart["marker"] is None
    assert [band["zone"] for band in chart["bands"]] == ["data", "labels", "underfit"]
    assert not any(band["here"] for band in chart["bands"])
    first, second = (threshold["x"] for threshold in chart["thresholds"])
    assert 0 < first <= second < 100


@settings(max_examples=40)
@given(
    st.lists(st.floats(0, 1e3), min_size=2, max_size=50),
    st.none() | st.floats(0, 1e3),
    st.integers(0, 10**6),
    st.integers(1, 1000),
)
def test_a_curve_stays_inside_its_square_and_lower_values_are_lower(
    values: list[float], level: float | None, first: int, stride: int
) -> None:
    series = [(float(first + stride * i), value) for i, value in enumerate(values)]
    chart = chart_of([series], [] if level is None else [level])
    assert chart is not None
    points = [tuple(map(float, point.split(","))) for point in chart["curves"][0].split()]
    assert all(0 <= coordinate <= 1000 for point in points for coordinate in point)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    depths = [y for _, y in points]
    for value, depth in zip(values, depths, strict=True):
        assert all(depth <= other for other_value, other in zip(values, depths, strict=True) if other_value < value)
    assert len(chart["levels"]) == (level is not None)
    assert all(0 <= place <= 100 for place in chart["levels"])
    assert 2 <= len(chart["y_ticks"]) <= 7
    assert len(chart["x_ticks"]) <= 6


def _frame(iteration: int, held_out_loss: float | None, error: float | None) -> dict[str, object]:
    return {"iteration": iteration, "passes": 2.0 * iteration, "held_out_loss": held_out_loss, "error": error}


def test_held_out_losses_along_the_way_are_a_curve_and_one_at_the_end_is_a_level() -> None:
    trace = [{"iteration": float(i), "loss": 0.5**i, "passes": 3.0 * i} for i in range(9)]
    along = loss_charts(trace, [_frame(0, 0.9, None), _frame(8, 0.1, None)], 0.1)
    assert {across: (len(chart["curves"]), chart["levels"]) for across, chart in along.items()} == {
        "iteration": (2, []),
        "passes": (2, []),
    }
    at_the_end = loss_charts(trace, [_frame(0, None, None), _frame(8, 0.1, None)], 0.1)["iteration"]
    assert (len(at_the_end["curves"]), len(at_the_end["levels"])) == (1, 1)


def test_the_error_is_drawn_where_there_are_records_to_take_it_from() -> None:
    known = error_charts([_frame(0, None, 1.2), _frame(8, None, 0.1)], chance=1.3)
    assert [len(chart["levels"]) for chart in known.values()] == [1, 1]
    assert error_charts([_frame(0, None, None), _frame(8, None, None)], chance=None) == {}


def test_one_point_makes_no_curve() -> None:
    assert loss_charts([], [], None) == {}
    assert loss_charts([{"iteration": 0.0, "loss": 1.0, "passes": 1.0}], [], 0.5) == {}
