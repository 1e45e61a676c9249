"""How a part of the soak test ends: its figures in a file, one line, every fault, and 1 if there was any."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def finish(result: Mapping[str, Any], written_to: Path | None, line: str) -> int:
    if written_to is not None:
        written_to.write_text(json.dumps({**result, **circumstances()}, indent=2) + "\n")
    print(line)
    for fault in result["faults"]:
        print(f"  {fault}", file=sys.stderr)
    return 1 if result["faults"] else 0


def circumstances() -> dict[str, Any]:
    """What the figures belong to: the day (UTC), the version, the commit where git knows it, the cores."""
    from exhume.version import VERSION

    return {
        "day": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": VERSION,
        "commit": _commit(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _commit() -> str:
    """
    The present commit, with a plus where the tree differs from it; empty where there is no git.
    """
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, check=True)
        # the page is what a run writes: that it differs says nothing about what was run
        changes = ["git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--", "../src", "."]
        changed = subprocess.run(changes, cwd=here, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit.stdout.decode().strip() + ("+" if changed.strip() else "")
