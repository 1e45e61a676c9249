"""Which images of a source, and how they are prepared: options that `train` and `audit` share."""

from typing import Annotated

from exhume.requests.request import Option, Request
from exhume.values import parse_counts, parse_names


class ImageOptions(Request):
    data_dir: Annotated[str | None, Option("The folder with cifar-10-batches-bin/ and the like.", metavar="PATH")] = (
        None
    )
    classes: Annotated[str | None, Option("Comma-separated, e.g. frog,truck.")] = None
    per_class: Annotated[str | None, Option("Comma-separated counts; default: an even split.")] = None
    side: Annotated[int | None, Option("Average images down to side x side pixels.")] = None
    standardise: Annotated[str | None, Option("subset (one mean and std), channels, cifar10-split or none.")] = None
    norm: Annotated[str | None, Option("sqrt-d: bring rows to norm sqrt(d); keep.")] = None

    def image_fields(self) -> dict[str, object]:
        """The fields of a DataConfig."""
        return {
            "data_dir": self.data_dir,
            "classes": parse_names(self.classes),
            "per_class": parse_counts(self.per_class),
            "side": self.side,
            "standardise": self.standardise,
            "norm": self.norm,
        }
