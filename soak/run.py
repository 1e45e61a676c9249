"""All parts of the soak test, two at a time, and their figures in docs/reliability.md: what `make soak` runs.

    python soak/run.py --kills 20 --inputs 50000 --seed 0 --results build/soak

Each part is a program of its own that writes one JSON file and ends with 1 if a promise was broken.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from outcome import circumstances

HERE = Path(__file__).parent
AT_A_TIME = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--inputs", type=int, default=50_000, help="for the fuzzing")
    parser.add_argument("--seed", type=int, default=0, help="for kills, faults and fuzzing: what strikes when")
    parser.add_argument("--results", type=Path, default=Path("build/soak"))
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "reliability.md")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    seed = ["--seed", str(asked.seed)]
    parts = {  # the longest first, so that both cores are busy to the end
        "fuzz": ["--inputs", str(asked.inputs), *seed],
        "kills": ["--kills", str(asked.kills), *seed],
        "memory": [],
        "faults": seed,
        "surroundings": [],
        "web": seed,
    }
    began = time.monotonic()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        codes = list(pool.map(lambda name: _run(name, parts[name], asked.results / f"{name}.json"), parts))
    whole = {"seed": asked.seed, "seconds": round(time.monotonic() - began, 1), **circumstances()}
    (asked.results / "run.json").write_text(json.dumps(whole, indent=2) + "\n")
    subprocess.run([sys.executable, HERE / "document.py", asked.results, asked.page], check=True)
    return max(codes)


def _run(name: str, options: list[str], result: Path) -> int:
    result.unlink(missing_ok=True)  # figures of an earlier run are not those of this one
    command = [sys.executable, str(HERE / f"{name}.py"), *options, "--json", str(result)]
    code = subprocess.run(command, check=False).returncode
    print(f"{name}: {'all promises kept' if code == 0 else f'ended with {code}'}", flush=True)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main())
