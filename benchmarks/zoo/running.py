"""The whole zoo, or part of it: one process per victim, so that none can stop or slow another; rows are kept."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zoo import page
from zoo.auditing import Result
from zoo.registry import VICTIMS
from zoo.rows import Row, line_of, load, made, measured, path_of, save
from zoo.victim import SHARED

PATIENCE = 4.0
"""How many times its budget an audit may take before its victim is given up, beside some minutes for the rest."""
REST_SECONDS = 180.0


def run(arguments: Sequence[str] | None, script: Path, description: str) -> None:
    options = _parse(arguments, description)
    wanted = [(name, seed) for name in options.only for seed in range(options.seed, options.seed + options.seeds)]
    if options.facts:
        print(page.facts_table([measured(VICTIMS[name], seed, options.data_dir)[1] for name, seed in wanted]))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    missing = [pair for pair in wanted if not path_of(options.out, *pair).is_file()]
    if options.workers == 0:
        for name, seed in missing:
            save(made(VICTIMS[name], seed, _budget(options, name), options.data_dir), options.out)
    else:
        with ThreadPoolExecutor(options.workers) as pool:
            for problem in pool.map(lambda pair: _in_a_process(script, options, *pair), missing):
                if problem:
                    print(problem, file=sys.stderr, flush=True)
    rows = [load(path) for pair in wanted if (path := path_of(options.out, *pair)).is_file()]
    print("\n\n".join(_tables(rows)))
    write(options.out, options.page)


def write(folder: Path, docs: Path | None) -> None:
    """All rows of the folder, whenever they were made: their tables, their lines of JSON, and the documentation."""
    paths = [path for name in VICTIMS for path in sorted(folder.glob(f"{name}.*.json"))]
    if not paths:
        return
    rows = [load(path) for path in paths]
    (folder / "zoo.jsonl").write_text("".join(line_of(row) for row in rows), encoding="utf-8")
    (folder / "zoo.md").write_text("\n\n".join(_tables(rows)) + "\n", encoding="utf-8")
    if docs is not None:
        missing = [name for name in VICTIMS if name not in {row.victim for row in rows}]
        docs.write_text(page.page(rows, missing), encoding="utf-8")


def _tables(rows: Sequence[Row]) -> list[str]:
    tables = [page.results_table(rows), page.said_list(rows, records=True), page.facts_table(rows)]
    return [*tables, f"Sentences that are false:\n\n{page.false_list(rows)}"]


def _in_a_process(script: Path, options: argparse.Namespace, name: str, seed: int) -> str | None:
    """None where the row was written."""
    command = [sys.executable, str(script), "--only", name, "--seed", str(seed), "--workers", "0"]
    budget = _budget(options, name)
    command += ["--budget", str(budget), "--out", str(options.out), "--data-dir", str(options.data_dir)]
    longest = 2 * PATIENCE * budget + REST_SECONDS
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=longest, env=environment)
    except subprocess.TimeoutExpired:
        return _given_up(options, name, seed, f"did not end within {longest:.0f} s")
    if done.returncode == 0:
        return None
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if last.startswith("FileNotFoundError"):  # data that are not here: not a result of the victim
        return f"{name}: {last}"
    return _given_up(options, name, seed, last)


def _given_up(options: argparse.Namespace, name: str, seed: int, why: str) -> str:
    """A row with the error: the victim is measured here, without an audit."""
    _, row = measured(VICTIMS[name], seed, options.data_dir)
    error, budget = Result(seconds=0.0, error=why), _budget(options, name)
    save(Row(**{**vars(row), "budget": budget, "with_records": error, "without_records": error}), options.out)
    return f"{name}: {why}"


def _budget(options: argparse.Namespace, name: str) -> float:
    return float(options.budget or VICTIMS[name].budget or page.BUDGET)


def _parse(arguments: Sequence[str] | None, description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=tuple(VICTIMS), metavar="NAME,...")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="how many of them")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first of them")
    seconds = f"seconds for the attacks of each audit; without it {page.BUDGET:.0f}, or what the victim's row says"
    parser.add_argument("--budget", type=float, metavar="S", help=seconds)
    parser.add_argument("--workers", type=int, default=2, help="victims at a time; 0: in this process, one by one")
    parser.add_argument("--out", type=Path, default=Path("build/zoo"), metavar="FOLDER")
    parser.add_argument("--data-dir", type=Path, default=SHARED, help="the folder that holds cifar-10-batches-bin")
    parser.add_argument("--facts", action="store_true", help="train and measure only: what is true of each victim")
    parser.add_argument("--page", type=Path, metavar="FILE", help="writes docs/real-models.md")
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    strangers = [name for name in names if name not in VICTIMS]
    if strangers:
        raise argparse.ArgumentTypeError(f"expected victims out of {', '.join(VICTIMS)}, found {strangers[0]!r}")
    return names
