"""An audit that says how far it is, and goes on after it was stopped."""

import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.attacks.running.settings import AttackSettings
from exhume.auditing.attempts import Attempt, carry_out
from exhume.auditing.plan import make_plan
from exhume.auditing.progress_folder import ProgressFolder
from exhume.auditing.target import AuditTarget, target_of_rows
from exhume.errors import ExhumeError, UsageError
from exhume.features.rows import HeldRows
from exhume.files import read_json
from exhume.requests.audit import AuditRequest

STOPPED_AT = 12


@pytest.fixture
def target(fitted: Any) -> AuditTarget:
    return target_of_rows(HeldRows(fitted.rows), fitted.weights, activation="relu", image_shape=(1, 4, 4))


def request(**more: Any) -> AuditRequest:
    return AuditRequest(weights=Path("w.safetensors"), out=Path("o"), **more)


def audit(target: AuditTarget, folder: ProgressFolder | None, stop: bool = False) -> tuple[Attempt, ...]:
    def watch(offer: Any, progress: Any) -> None:
        if stop and progress.step.iteration == STOPPED_AT:
            signal.raise_signal(signal.SIGINT)

    kept = None if folder is None else folder.of("as published", target.observation)
    return carry_out(target.observation, make_plan(target, 3, 0).offers, 60, AttackSettings(), watch, kept)


def test_an_audit_that_was_stopped_goes_on_and_ends_as_if_nothing_had_happened(
    target: AuditTarget, tmp_path: Path
) -> None:
    whole = audit(target, None)[0].attacked
    (stopped,) = audit(target, ProgressFolder.open(tmp_path / "p", request()), stop=True)
    assert stopped.attacked is not None
    assert stopped.attacked.interrupted
    again = audit(target, ProgressFolder.open(tmp_path / "p", request()))[0].attacked
    assert whole is not None
    assert again is not None
    assert len(stopped.attacked.trace) == STOPPED_AT < len(again.trace)
    assert again.trace[0] == stopped.attacked.trace[0], "it began anew"
    assert not again.stopped
    assert torch.equal(again.reconstruction.candidates, whole.reconstruction.candidates)


def test_it_says_how_far_it_is_to_nobody_but_the_owner(target: AuditTarget, tmp_path: Path) -> None:
    audit(target, ProgressFolder.open(tmp_path / "p", request(budget=90.0)), stop=True)
    told = read_json(tmp_path / "p" / "progress.json")
    assert (told["budget"], told["attack"], told["of"], told["method"]) == (90.0, 1, 3, "split-newton")
    assert (told["part"], list(told["shares"])) == ("as published", ["as published 0"])
    assert 0 <= told["spent"] < 60
    assert told["candidates"] >= len(told["pictures"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "p").iterdir()}
    assert stat.S_IMODE((tmp_path / "p").stat().st_mode) == 0o700
    assert {mode for name, mode in modes.items() if "checkpoint" in name} == {0o600}


def test_shares_are_those_of_the_beginning_and_time_that_was_used_counts(target: AuditTarget, tmp_path: Path) -> None:
    folder = ProgressFolder.open(tmp_path / "p", request())
    part = folder.of("int8", target.observation)
    assert not part.has_begun(0)
    assert part.share(0, 20.0) == 20.0
    folder.began -= 100  # as if it had taken that long
    folder.write()
    later = ProgressFolder.open(tmp_path / "p", request(reveal=True))
    assert 100 <= later.used < 160
    assert later.of("int8", target.observation).share(0, 7.0) == 20.0
    assert later.of("int8", target.observation).has_begun(0)
    assert not later.of("int4", target.observation).has_begun(0)


def test_progress_of_another_audit_or_in_pieces_is_refused(tmp_path: Path) -> None:
    ProgressFolder.open(tmp_path / "p", request()).write()
    with pytest.raises(UsageError, match="the same audit"):
        ProgressFolder.open(tmp_path / "p", request(seed=1))
    (tmp_path / "p" / "progress.json").write_text('{"schema": 1, "asked": {"weights": "w.safetensors"}}')
    with pytest.raises(ExhumeError, match="damage at 'shares'"):
        ProgressFolder.open(tmp_path / "p", request())


def test_one_audit_at_a_time_uses_it(tmp_path: Path) -> None:
    asked = request(progress=tmp_path / "p")
    with (
        ProgressFolder.of_request(asked),
        pytest.raises(UsageError, match="another command at work there"),
        ProgressFolder.of_request(asked),
    ):
        pass
    with ProgressFolder.of_request(asked) as folder:
        assert folder is not None


def test_a_folder_of_other_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir(mode=0o755)
    (tmp_path / "p" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="other files"):
        ProgressFolder.open(tmp_path / "p", request())
    assert stat.S_IMODE((tmp_path / "p").stat().st_mode) == 0o755
