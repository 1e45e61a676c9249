"""The knowledge of an informed adversary, kept as a file of its own in the run folder.

The owner of a run writes it from the truth (`exhume known`); an attack reads it, and the evaluation leaves out what was
known.
"""

from dataclasses import replace
from pathlib import Path

from exhume.errors import ExhumeError
from exhume.experiments.run import RunFolder
from exhume.experiments.truth import Truth
from exhume.known import KNOWN_FILE, Known, load_known, save_known


def keep_known(run: RunFolder, given: Path | None, d: int) -> Known:
    """The samples of a file; it stays in the run folder, because the evaluation has to know them as well."""
    kept = run.path / KNOWN_FILE
    if given is None and not kept.exists():
        raise ExhumeError(f"expected {KNOWN_FILE} in {run.path}, found none; give --known FILE, or 'exhume known'")
    known = load_known(kept if given is None else given, d)
    if given is not None and given.resolve() != kept.resolve():
        save_known(known, kept)
    return known


def unknown_part(run: RunFolder, truth: Truth) -> Truth:
    """The samples that were not known to the informed adversary of this run."""
    known = load_known(run.path / KNOWN_FILE, truth.inputs.shape[1]).inputs.to(truth.inputs)
    hidden = ~(truth.inputs[:, None] == known[None]).all(dim=2).any(dim=1)
    if not hidden.any():
        raise ExhumeError(f"expected a sample that {run.path / KNOWN_FILE} leaves out, found all of them in it")
    return replace(
        truth,
        inputs=truth.inputs[hidden],
        labels=truth.labels[hidden],
        coefficients=None if truth.coefficients is None else truth.coefficients[hidden],
        class_index=truth.class_index[hidden],
        preparation=replace(truth.preparation, scale=truth.preparation.scale[hidden]),
    )
