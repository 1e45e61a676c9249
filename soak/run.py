"""All parts of the soak test, two at a time, and their figures in docs/reliability.md: what `make soak` runs.

    python soak/run.py --kills 20 --inputs 50000 --results build/soak

Each part is a program of its own that writes one JSON file and ends with 1 if a promise was broken.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--inputs", type=int, default=50_000, help="for the fuzzing")
    parser.add_argument("--results", type=Path, default=Path("build/soak"))
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "reliability.md")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    lanes = [
        [("fuzz", ["--inputs", str(asked.inputs)])],
        [("kills", ["--kills", str(asked.kills)]), ("faults", []), ("memory", [])],
    ]
    with ThreadPoolExecutor(len(lanes)) as pool:
        codes = [
            code for lane in pool.map(lambda lane: _one_after_the_other(lane, asked.results), lanes) for code in lane
        ]
    subprocess.run([sys.executable, HERE / "document.py", asked.results, asked.page], check=True)
    return max(codes)


def _one_after_the_other(lane: list[tuple[str, list[str]]], results: Path) -> list[int]:
    return [_run(name, options, results / f"{name}.json") for name, options in lane]


def _run(name: str, options: list[str], result: Path) -> int:
    result.unlink(missing_ok=True)  # figures of an earlier run are not those of this one
    command = [sys.executable, str(HERE / f"{name}.py"), *options, "--json", str(result)]
    code = subprocess.run(command, check=False).returncode
    print(f"{name}: {'all promises kept' if code == 0 else f'ended with {code}'}", flush=True)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main())
