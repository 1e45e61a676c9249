from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume_papers.sweeps.spec_file import plan_spec, read_spec
from exhume_papers.sweeps.sweep import Sweep

SPEC = """
seeds = [0, 4]
keep = "results"

[[victim]]  # the only one
kind = "rf"
data = "sphere"
dim = 10
samples = 3
ratio = [1, 4]

[[attack]]
method = "split-newton"

[[attack]]
method = "heavy-ball"
inactive-slope = 0.02
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_a_file_says_the_same_as_python(tmp_path: Path) -> None:
    sweep, plan = plan_spec(write(tmp_path, SPEC))
    victim = {"kind": "rf", "data": "sphere", "dim": 10, "samples": 3, "ratio": [1, 4]}
    attacks = ({"method": "split-newton"}, {"method": "heavy-ball", "inactive_slope": 0.02})
    same = Sweep(victims=(victim,), attacks=attacks, seeds=(0, 4), keep="results")
    assert [run.key for run in plan.runs] == [run.key for run in same.plan().runs]
    assert (sweep.seeds, sweep.keep) == (same.seeds, same.keep)


def test_one_section_needs_no_double_brackets_and_attacks_may_be_left_out(tmp_path: Path) -> None:
    plan = plan_spec(write(tmp_path, '[victim]\nkind = "rf"\ndata = "sphere"\ndim = 9\nsamples = 2\nratio = 3\n'))[1]
    assert [run.attack.method for run in plan.runs] == ["auto"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("ratio = [1, 4]", 'ratio = "4"'), r"grid.toml line 10: victim 1, ratio: expected .* found '4'"),
        (('kind = "rf"', 'kind = "fr"'), r"grid.toml line 6: victim 1, kind: "),
        (('kind = "rf"', ""), r"grid.toml line 5: victim 1, kind: expected a kind .* found None"),
        (("dim = 10", ""), r"grid.toml line 5: victim 1: expected the dimension"),
        (("inactive-slope = 0.02", "inactive-slop = 0.02"), r"grid.toml line 17: attack 2, inactive_slop: "),
        (('"heavy-ball"', '"heavy"'), r"grid.toml line 15: attack 2: expected a method"),
        (("seeds = [0, 4]", "seeds = 1.5"), r"grid.toml: expected another seeds|grid.toml: expected seeds"),
        (("seeds = [0, 4]", "seed = 1"), r"grid.toml: expected the settings victim, attack, seeds, keep, found 'seed'"),
        (('keep = "results"', 'keep = "some"'), r"grid.toml: expected keep to be 'all' or 'results', found 'some'"),
        (("[[victim]]", "[[victims]]"), r"expected a section \[\[victim\]\] in .*grid.toml, found none"),
        (("[[victim]]", "victim = 3\n[other]"), r"grid.toml: expected"),
        (("dim = 10", "dim = "), r"expected TOML in .*grid.toml, found: .*line 8"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_where(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in SPEC
    with pytest.raises(ExhumeError, match=words) as refused:
        plan_spec(write(tmp_path, SPEC.replace(*change)))
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match=r"expected a readable sweep at .*none.toml"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ExhumeError, match=r"expected TOML in .*bytes.toml"):
        read_spec(tmp_path / "bytes.toml")
