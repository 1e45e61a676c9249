"""What the page asks for, as the request of `exhume audit`: files by their keys, everything else as text.

a network      weights, and the weights before training where they are known: dense layers, without any code
known features θ, the rows V of φ(Vx + b) and the name of φ
"""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from exhume.errors import UsageError
from exhume.requests.audit import AuditRequest
from exhume.serving.uploads import Uploads
from exhume.validation import one_line

DEFENCES = {
    "int8": "Round the weights to 8 bits",
    "prune50": "Remove the half of the features with the smallest weights",
    "noise": "Add noise of a tenth of the weights' root mean square",
    "dp": "Train the head again with differential privacy (needs records with labels)",
}
"""What the page offers under --what-if, each with what it does."""
ACTIVATIONS = ("relu", "tanh", "gelu", "sigmoid", "softplus", "erf", "relu+tanh", "silu", "leaky_relu", "elu", "relu6")
USUAL = "relu"
BUDGETS = {"1m": "1 minute", "10m": "10 minutes", "1h": "1 hour", "8h": "8 hours"}


Form = TypeVar("Form", bound="Defences")


class Defences(BaseModel):
    """Those to audit again with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what_if: tuple[str, ...] = ()

    @field_validator("what_if")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        strangers = [name for name in names if name not in DEFENCES]
        if strangers:
            raise ValueError(f"expected defences out of {', '.join(DEFENCES)}, found {strangers[0][:40]!r}")
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
        given = (self.weights, self.initial, self.features, self.truth, self.control)
        return tuple(key for key in given if key is not None)

    def request(self, uploads: Uploads, out: Path, progress: Path) -> AuditRequest:
        def path(key: str | None) -> str | None:
            return None if key is None else str(uploads.get(key).path)

        given = {
            "weights": path(self.weights),
            "initial": path(self.initial),
            "features": path(self.features),
            "activation": self.activation or (USUAL if self.features else None),
            "truth": path(self.truth),
            "control": path(self.control),
            "label": self.label,
            "scaling": None if self.scaling == "none" else self.scaling,
            "samples": self.samples,
            "image_shape": self.image_shape,
            "budget": self.budget,
            "what_if": ",".join(self.what_if) or None,
            "reveal": self.reveal,
            "out": out,
            "progress": progress,
        }
        return AuditRequest.from_texts({name: value for name, value in given.items() if value is not None})
