"""What the page asks for, as the request of `exhume audit`: files by their keys, everything else as text.

a network      weights, and the weights before training where they are known: dense layers, without any code
known features θ, the rows V of φ(Vx + b) and the name of φ
"""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from exhume.activations import ACTIVATIONS
from exhume.auditing.what_if import OFFERED
from exhume.errors import UsageError
from exhume.requests.audit import AuditRequest
from exhume.serving.uploads import Uploads
from exhume.validation import one_line

USUAL = "relu"
BUDGETS = {"1m": "1 minute", "10m": "10 minutes", "1h": "1 hour", "8h": "8 hours"}
FILES = ("weights", "initial", "features", "truth", "control")
"""Fields that are keys of uploads."""

Form = TypeVar("Form", bound="Defences")


def offered_activations() -> list[str]:
    """All but the one whose features no attack reads."""
    return [name for name in ACTIVATIONS.names() if name != "linear"]


class Defences(BaseModel):
    """Those to audit again with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what_if: tuple[str, ...] = ()

    @field_validator("what_if")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        strangers = [name for name in names if name not in OFFERED]
        if strangers:
            raise ValueError(f"expected defences out of {', '.join(OFFERED)}, found {strangers[0][:40]!r}")
        return names

    @classmethod
    def read(cls: type[Form], body: bytes) -> Form:
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise UsageError(one_line(error, cls)) from None


class AuditForm(Defences):
    """The fields of the page. Files are keys of uploads."""

    weights: str
    initial: str | None = None
    features: str | None = None
    activation: str | None = Field(default=None, max_length=40)
    truth: str | None = None
    control: str | None = None
    label: str | None = Field(default=None, max_length=200)
    scaling: Literal["none", "standard", "minmax"] = "none"
    samples: int | None = Field(default=None, ge=1, lt=2**31)
    image_shape: str | None = Field(default=None, max_length=40)
    budget: str = Field(default="10m", max_length=20)
    reveal: bool = False

    def file_keys(self) -> tuple[str, ...]:
        """Of all files that it names."""
        return tuple(key for name in FILES if (key := getattr(self, name)) is not None)

    def request(self, uploads: Uploads, out: Path, progress: Path) -> AuditRequest:
        given = {
            **self.model_dump(),
            **{name: self._path(name, uploads) for name in FILES},
            "activation": self.activation or (USUAL if self.features else None),
            "scaling": None if self.scaling == "none" else self.scaling,
            "what_if": ",".join(self.what_if) or None,
            "out": out,
            "progress": progress,
        }
        return AuditRequest.from_texts({name: value for name, value in given.items() if value is not None})

    def _path(self, name: str, uploads: Uploads) -> str | None:
        key = getattr(self, name)
        return None if key is None else str(uploads.get(key).path)
