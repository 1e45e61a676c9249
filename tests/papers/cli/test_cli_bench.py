"""`exhume bench`: the table, the JSON and the pictures of a race on a tiny case."""

import json
from pathlib import Path
from typing import Any

TINY = ("--dim", "6", "--samples", "2", "--steps", "60", "--published", "5s")
CURVE = ("--success", "4", "--trials", "1", "--success-dim", "6", "--success-samples", "2", "--ours-only")


def test_a_race_and_a_success_curve_are_told_written_and_drawn(exhume: Any, tmp_path: Path) -> None:
    done = exhume("bench", *TINY, *CURVE, "--out", tmp_path / "bench", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == json.loads((tmp_path / "bench" / "bench.json").read_text())
    ours, published = told["split-newton"], told["heavy-ball"]
    assert ours["error"] < 0.01 < published["error"], "60 steps are not enough for the published attack"
    assert told["speedup"] > 0
    assert told["speedup_is_lower_bound"]
    assert published["seconds_to_target"] is None
    assert published["iterations"] == 60
    for numbers in (ours, published):
        assert numbers["passes"] > 0
        assert numbers["peak_memory_mb"] > 50
    assert told["success"] == {"split-newton": {"4": 1.0}}
    assert set(told["recovered_by_coefficient"]) == {"4"}
    for name in ("race.png", "success.png", "coefficients.png"):
        assert (tmp_path / "bench" / name).read_bytes().startswith(b"\x89PNG"), name
