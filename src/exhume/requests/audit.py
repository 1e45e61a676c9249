"""What an audit is asked for: by `exhume audit`, and in Python."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from exhume.errors import UsageError
from exhume.requests.images import ImageOptions
from exhume.requests.kinds import Bytes, Names, Seconds, Seed
from exhume.requests.request import Option, Request
from exhume.units import bytes_text, duration_text
from exhume.values import parse_counts, parse_names

FLAT = (0,)
"""The input shape of a model that takes rows, whatever their length."""


class TargetOptions(Request):
    """Which weights, and what they are weights of."""

    weights: Annotated[
        Path,
        Option(
            "safetensors, a PyTorch state dict or checkpoint (weights only), a Hub folder, ONNX, Keras, skops.",
            argument=True,
        ),
    ]
    model: Annotated[
        str | None,
        Option(
            "Your function that returns the torch.nn.Module. It is code, and it runs only because you name it. Without "
            "it the network is read from the tensors, where they are a chain of dense layers.",
            metavar="PACKAGE.MODULE:FACTORY",
        ),
    ] = None
    head: Annotated[str | None, Option("The linear layer to attack; default: the last one called.")] = None
    features: Annotated[
        Path | None, Option("Without code: a safetensors file with V (p x d), and b if there is a bias.")
    ] = None
    activation: Annotated[
        str | None, Option("Without --model: relu, tanh, gelu, ...; default: as the file says, or relu.")
    ] = None
    initial: Annotated[
        str | None,
        Option(
            "The weights before training, or an earlier checkpoint: a file, or zero. Default: nobody knows (with "
            "--features: zero)."
        ),
    ] = None
    initial_seed: Annotated[
        int | None, Field(ge=0), Option("The same, drawn again: torch.manual_seed(S), then the factory or the layers.")
    ] = None
    initial_seed_search: Annotated[
        int | None, Field(ge=1), Option("The same, for an unknown seed: tries 0 to N - 1.", metavar="N")
    ] = None
    against: Annotated[
        Path | None,
        Option(
            "An earlier released version of the same model: what was deleted, added or trained on between the two is "
            "what is looked for, and --truth are those records."
        ),
    ] = None
    public: Annotated[
        str | None,
        Option(
            "With --against, of a linear model or --features: records of the same kind that anybody may have, a file "
            "of rows.",
            metavar="DATA",
        ),
    ] = None
    image_shape: Annotated[
        str | None, Option("How the model takes one input, e.g. 3,32,32 or flat; default: by the data.")
    ] = None
    recipe_file: Annotated[
        Path | None, Option("With --model and --initial: the training as JSON, to be replayed; see docs/replay.md.")
    ] = None
    row_norm: Annotated[float | None, Option("The norm of every training row, if an attacker would know it.")] = None

    def input_shape(self) -> tuple[int, ...] | None:
        return FLAT if self.image_shape == "flat" else parse_counts(self.image_shape)


class RecordNames(Request):
    """Which records to hold the result against. The attack never sees them."""

    truth: Annotated[
        str | None,
        Option(
            "The training records: a table (.csv, .parquet), arrays (.npz, .npy, safetensors with inputs and labels), "
            "a folder of images, faces, cifar10 or tiny-imagenet.",
            metavar="DATA",
        ),
    ] = None
    control: Annotated[
        str | None, Option("Records that were not trained on; default: more of the same.", metavar="DATA")
    ] = None


class AuditOptions(ImageOptions):
    """What every audit may be asked for: of files and of a model in memory, which takes them as keyword arguments."""

    label: Annotated[str | None, Option("Of a table: the column with the labels, which is no input.")] = None
    scaling: Annotated[
        str | None,
        Option(
            "Of a table: how numbers were scaled before training: standard or minmax (fitted to --truth), "
            'standard-all (those of categories as well), a JSON file {"column": [centre, scale]}, or a skops file with '
            "the scaler; default: as the model's own file does first, or none."
        ),
    ] = None
    columns: Annotated[
        Path | None,
        Option(
            'Of a table: a JSON file {"column": "number", "other": "one-hot", ...} with the columns in the order in '
            "which the model reads them: number, one-hot, drop-first, ordinal, or a list of categories; default: as "
            "the table has them."
        ),
    ] = None
    samples: Annotated[
        int | None, Field(ge=1), Option("n, the number of training records; needed with images as --truth.")
    ] = None
    budget: Annotated[Seconds, Option("At most so long in all, e.g. 90s, 10m, 2h.", text=duration_text)] = 600.0
    memory: Annotated[
        Bytes | None, Option("At most so much memory for the whole process, e.g. 8G.", text=bytes_text)
    ] = None
    what_if: Annotated[
        Names | None, Option("Defences to audit again, e.g. int8,prune50,noise,dp (dp needs labels).")
    ] = None
    recipe: Annotated[
        Names | None,
        Option(
            "How it was trained, e.g. sgd,momentum or adam,augmentation. With stationary (L2 in the loss, until the "
            "weights rest) the weights are attacked themselves."
        ),
    ] = None
    progress: Annotated[
        Path | None,
        Option("A folder that says how far it is; after Ctrl-C the same audit, with another --out, goes on from it."),
    ] = None
    seed: Seed = 0

    @property
    def defences(self) -> tuple[str, ...]:
        return parse_names(self.what_if) or ()

    @property
    def recipes(self) -> tuple[str, ...]:
        return parse_names(self.recipe) or ()


class AuditRequest(AuditOptions, RecordNames, TargetOptions):
    command: ClassVar[str] = "audit"

    fail_on: Annotated[
        str | None,
        Option("Exit with 1 at this verdict or a worse one: recovered, partly-recovered, inconclusive."),
    ] = None
    reveal: Annotated[bool, Option("Keep recovered pictures sharp in the report.")] = False
    out: Annotated[Path, Option("The folder to make for the report.")]

    def check(self) -> None:
        """Whether the options agree with each other."""
        if self.model is not None and self.features is not None:
            raise UsageError("expected --model package.module:factory or --features V.safetensors, found both of them")
        if self.features is not None and self.activation is None:
            raise UsageError("expected --activation with --features, e.g. --activation relu, found none")
        if self.model is not None and self.activation is not None:
            raise UsageError(f"expected no --activation with --model, whose code says it, found {self.activation!r}")
        starts = (self.initial, self.initial_seed, self.initial_seed_search)
        self._check_versions(starts)
        if sum(start is not None for start in starts) > 1:
            raise UsageError("expected one of --initial, --initial-seed and --initial-seed-search, found several")
        if self.features is not None and (self.initial_seed is not None or self.initial_seed_search is not None):
            raise UsageError("expected no seed of the weights with --features, whose models start at zero, found one")
        known = starts != (None, None, None) or self.against is not None
        if self.recipe_file is not None and (self.model is None or not known):
            raise UsageError("expected --model and --initial with --recipe-file, found it without; add them")
        if self.control is not None and self.truth is None:
            raise UsageError("expected --truth with --control, found none to compare it with")

    def _check_versions(self, starts: tuple[str | int | None, ...]) -> None:
        """`--against` is a start of its own, and of ridge models the records of others belong to it."""
        if self.against is not None and any(start is not None for start in starts):
            raise UsageError("expected --against or a start (--initial, --initial-seed), found both; give one of them")
        versions = self.features is not None and self.against is not None
        if versions and self.public is None:
            raise UsageError(
                "expected --public DATA with --features and --against, records of the same kind that tell how features "
                "vary, found none"
            )
        if self.public is not None and self.against is None:
            raise UsageError("expected --against with --public, found it without; add the older version")
        if versions and self.what_if is not None:
            raise UsageError(f"expected no --what-if with two versions of a ridge model, found {self.what_if!r}")
