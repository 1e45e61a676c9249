"""Records that somebody names: a file of rows, a folder of images, or a known data set."""

from pathlib import Path

from exhume.auditing.records import (
    Control,
    TableOptions,
    control_from_images,
    control_from_rows,
    is_a_file,
    load_records,
    more_of_the_same,
    read_records,
)
from exhume.data.config import DataConfig
from exhume.errors import UsageError
from exhume.experiments.truth import Truth
from exhume.formats.linear_head import Scaler
from exhume.requests.audit import AuditOptions


def named_truth(
    name: str, options: AuditOptions, image_shape: tuple[int, int, int] | None = None, scaler: Scaler | None = None
) -> Truth:
    """`image_shape`: how rows of a file are shown, where they do not say it themselves. `scaler`: that of the
    model's file."""
    source = _source(name, options)
    if isinstance(source, Path):
        return read_records(source, image_shape, table_options(options, scaler))
    return load_records(source)


def named_control(name: str, options: AuditOptions, truth: Truth, scaler: Scaler | None = None) -> Control:
    """Prepared like `truth`, and as many at most."""
    source = _source(name, options)
    if isinstance(source, Path):
        found = control_from_rows(source, table_options(options, scaler), truth)
    else:
        found = control_from_images(source, truth)
    return found.first(len(truth.inputs))


def further_control(trained: str, options: AuditOptions, truth: Truth) -> Control | None:
    """As many again out of the source of the training records, where it is one of images that has more."""
    source = _source(trained, options)
    return None if isinstance(source, Path) or truth.image_shape is None else more_of_the_same(source, truth)


def table_options(options: AuditOptions, scaler: Scaler | None = None) -> TableOptions:
    return TableOptions(options.label, options.scaling, options.columns, scaler)


def _source(name: str, options: AuditOptions) -> Path | DataConfig:
    if is_a_file(name):
        return Path(name)
    if options.samples is None:
        raise UsageError(f"expected --samples, the number of training records, with images of {name}, found none")
    return DataConfig.parse(name=name, samples=options.samples, **options.image_fields())
