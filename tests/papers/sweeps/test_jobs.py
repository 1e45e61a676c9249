"""What a job says when it fails, for a table that others may get to see."""

from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume_papers.sweeps import jobs
from exhume_papers.sweeps.results import as_csv, columns, row
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweep_folder import Ended

SPHERE = {"kind": "rf", "data": "sphere", "dim": 10, "samples": 3, "ratio": 4}


@pytest.mark.parametrize("failure", [ExhumeError, RuntimeError])
def test_reasons_name_files_of_the_sweep_and_no_folder_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise failure(f"expected {tmp_path}/victims/ab/truth.safetensors\nand /home/somebody/photos/cat.png")

    monkeypatch.setattr(jobs, "_train", fail)
    job = jobs.TrainJob(Sweep(victims=(SPHERE,)).plan().runs[0].victim)
    end = jobs.execute(job, tmp_path, lambda words: None)
    assert end.failure is not None
    assert end.failure.removeprefix("RuntimeError: ") == "expected victims/ab/truth.safetensors and cat.png"
    gone = jobs.execute(job, tmp_path / "gone", lambda words: None)
    assert gone.failure == "expected the sweep's folder gone on every machine, found none here"


def test_the_table_keeps_no_folder_of_a_reason_that_an_older_version_wrote_down() -> None:
    plan = Sweep(victims=(SPHERE,)).plan()
    line = row(plan.runs[0], Ended(None, "training: expected /home/somebody/a.bin, found none"))
    assert line["reason"] == "training: expected a.bin, found none"
    assert "somebody" not in as_csv(columns(plan), [line])
