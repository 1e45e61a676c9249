"""V may be larger than the memory: a process works on its rows and never holds them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

D = 3072
FEATURES_BYTES = int(float(os.environ.get("EXHUME_TEST_FEATURES_BYTES", "12e9")))
P = FEATURES_BYTES // (4 * D)
LIMIT_BYTES = 3 * 10**9
STATUS = Path("/proc/self/status")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def anonymous_bytes(process: int) -> int:
    """Resident memory that is not a view of a file; 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def peak_of(*arguments: str) -> int:
    """The largest anonymous memory of an exhume process while it runs a command."""
    process = subprocess.Popen([sys.executable, "-m", "exhume", *arguments], stdout=subprocess.PIPE, text=True)
    peak = 0
    try:
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    return peak


@pytest.mark.skipif(not STATUS.exists() or "RssAnon" not in STATUS.read_text(), reason="needs /proc with RssAnon")
@pytest.mark.parametrize("features", ["seed", "file"])
def test_features_of_12_gigabytes_are_trained_on_and_attacked_in_3(features: str, tmp_path: Path) -> None:
    needed = FEATURES_BYTES + 4 * 10**9
    if features == "file" and shutil.disk_usage(tmp_path).free < needed:
        pytest.skip(f"needs {needed / 1e9:.0f} GB of free disk under {tmp_path}")
    run = tmp_path / "run"
    victim = ("--data", "sphere", "--dim", str(D), "--samples", "10", "--params", str(P), "--features", features)
    limits = ("--memory", "1G", "--iterations", "2", "--method", "heavy-ball")
    try:
        peaks = {
            "train": peak_of("train", "rf", *victim, "--out", str(run)),
            "attack": peak_of("attack", str(run), *limits),
        }
        summary = json.loads((run / "summary.json").read_text())
    finally:
        shutil.rmtree(run, ignore_errors=True)  # pytest keeps its folders for a while, and this one is large
    print({name: f"{peak / 1e6:.0f} MB" for name, peak in peaks.items()})
    assert summary["p"] * summary["d"] * 4 >= FEATURES_BYTES - 4 * D
    assert summary["iterations"] == 2
    assert min(peaks.values()) > 0
    assert max(peaks.values()) < LIMIT_BYTES
