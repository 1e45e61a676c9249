"""How much longer a sweep of 500 tiny runs takes than the runs themselves: exhume sweep, two workers of one thread.

The runs themselves: the seconds that the workers measured inside their jobs, divided by the number of workers. What is
over that is starting processes, importing, handing out jobs, reading and writing the table.
"""

import argparse
import tempfile
from pathlib import Path

from exhume_papers.sweeps.engine_choice import make_engine
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import run_sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    victim = {"kind": "rf", "data": "sphere", "dim": 10, "samples": 3, "ratio": 4}
    plan = Sweep(victims=(victim,), attacks=({"method": "split-newton"},), seeds=given.runs).plan()
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine("local", Path(folder), workers=given.workers, threads=1)
        swept = run_sweep(plan, Path(folder), engine)
    alone = swept.work_seconds / given.workers
    print(
        f"{swept.done} runs done, {swept.failed} failed: {swept.seconds:.1f} s, the runs themselves {alone:.1f} s on "
        f"{given.workers} workers: overhead {100 * (swept.seconds / alone - 1):.1f} %"
    )


if __name__ == "__main__":
    main()
