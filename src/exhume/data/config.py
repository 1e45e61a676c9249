"""Which data a victim is trained on: everything needed to load the same rows again, and data sets by name.

A data set is a `DataSource`: an entry point of the group `exhume.data`, or one that was registered by a call.

    [project.entry-points."exhume.data"]
    faces = "exhume.data.faces:FACES"

What no data set has as its name is the path of a folder of images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from exhume.data.image_scales import Norm, Standardise
from exhume.errors import UsageError
from exhume.extensions import Registry
from exhume.validation import parse_fields

if TYPE_CHECKING:  # which takes torch
    from exhume.data.dataset import Dataset

LabelRule = Literal["linear", "sign"]
DtypeName = Literal["float32", "float64"]

DEFAULT_NOISE = 0.25


class DataConfig(BaseModel):
    """The request for a data set. A field given as None takes its default, which may depend on the name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1)]
    samples: Annotated[int, Field(ge=1)]
    dim: Annotated[int, Field(ge=1)] | None = None
    subspace: Annotated[int, Field(ge=1)] | None = None
    label_rule: LabelRule = "linear"
    noise: Annotated[float, Field(ge=0)] = DEFAULT_NOISE
    data_dir: Path | None = None
    classes: tuple[str, ...] = ()
    per_class: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    side: Annotated[int, Field(ge=1)] | None = None
    standardise: Standardise = "subset"
    norm: Norm = "sqrt-d"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    dtype: DtypeName = "float32"

    @classmethod
    def parse(cls, **fields: object) -> "DataConfig":
        """The configuration, or a UsageError of one line instead of pydantic's several."""
        return parse_fields(cls, **fields)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_defaults(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        given = {key: value for key, value in fields.items() if value is not None}
        name = given.get("name")
        source = SOURCES.get(name) if isinstance(name, str) else None
        if source is not None:
            given |= {key: value for key, value in source.defaults.items() if given.get(key) in (None, ())}
        return given

    @model_validator(mode="after")
    def _fields_agree(self) -> "DataConfig":
        source = SOURCES.get(self.name)
        (check_images if source is None else source.check)(self)
        return self

    @property
    def short_name(self) -> str:
        """The name without the folders that lead to it: they may name a user."""
        return self.name if self.name in SOURCES.names() else Path(self.name).name or "FOLDER"

    def split(self, class_count: int) -> tuple[int, ...]:
        """How many samples of each class: as asked, or evenly with the remainder to the first classes."""
        if self.per_class is None:
            share, remainder = divmod(self.samples, class_count)
            return tuple(share + (position < remainder) for position in range(class_count))
        if len(self.per_class) != class_count:
            raise UsageError(
                f"expected one number in per_class for each of the {class_count} classes, found {len(self.per_class)}"
            )
        return self.per_class


@dataclass(frozen=True)
class DataSource:
    """`load` gives what a request asks for, and `check` refuses a request that makes no sense for this data set.

    `defaults` are those of the request's fields that differ from what images have.
    """

    name: str
    load: Callable[[DataConfig], "Dataset"]
    check: Callable[[DataConfig], None]
    defaults: Mapping[str, object] = field(default_factory=dict)


SOURCES: Registry[DataSource] = Registry("exhume.data", "a data set")


def register_data(source: DataSource) -> DataSource:
    """From now on `--data NAME` means this data set."""
    return SOURCES.add(source)


def check_images(config: DataConfig) -> None:
    """What holds for images of any source."""
    sphere_only = {
        "dim": config.dim is not None,
        "subspace": config.subspace is not None,
        "label_rule": config.label_rule != "linear",
        "noise": config.noise != DEFAULT_NOISE,
    }
    refuse(config, sphere_only, "is for the sphere")
    if config.per_class is not None and sum(config.per_class) != config.samples:
        raise UsageError(
            f"expected per_class to add up to samples = {config.samples}, found {sum(config.per_class)}; change one"
        )
    if config.classes:
        config.split(len(config.classes))


def refuse(config: DataConfig, given: dict[str, bool], why: str) -> None:
    """Complains about the first field that is given."""
    for name, is_given in given.items():
        if is_given:
            raise UsageError(
                f"expected no {name} with the data set {config.name!r}, found {getattr(config, name)!r}; "
                f"{name} {why}, leave it out"
            )
