"""How a part of the soak test ends: its figures in a file, one line, every fault, and 1 if there was any."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def finish(result: Mapping[str, Any], written_to: Path | None, line: str) -> int:
    if written_to is not None:
        written_to.write_text(json.dumps(result, indent=2) + "\n")
    print(line)
    for fault in result["faults"]:
        print(f"  {fault}", file=sys.stderr)
    return 1 if result["faults"] else 0
