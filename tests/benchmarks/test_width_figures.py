from pathlib import Path

import pytest
from width_figures import Curve, draw_angles, draw_falsification, draw_recovery

RECOVERY = [
    Curve("r = 5", "d = 40, numbers 30", [30, 60], [0.0, 1.0]),
    Curve("r = 5", "d = 640, numbers 1,030", [30, 60], [0.5, 1.0]),
]
ANGLES = [Curve("gradient descent", "", [50, 200], [1e-6, 2e-6]), Curve("Adam", "", [50, 200], [1.5, 1.5])]


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_every_figure_is_drawn(tmp_path: Path) -> None:
    draw_recovery(RECOVERY, tmp_path / "recovery.png")
    draw_angles(ANGLES, ANGLES, tmp_path / "angles.png")
    draw_falsification(ANGLES, {"Adam": 100.0}, 0.05, tmp_path / "falsification.png")
    assert all(is_picture(tmp_path / f"{name}.png") for name in ("recovery", "angles", "falsification"))


def test_a_bound_of_no_curve_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        draw_falsification(ANGLES, {"sgd": 100.0}, 0.05, tmp_path / "falsification.png")
