"""Options that belong together, written once as a dataclass and shared by commands."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from exhume.data.config import DataConfig
    from exhume.data.dataset import Dataset


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a dataclass replaced by one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [_parameter(option.name, types, _default(option)) for option in fields(groups[name])]
        else:
            parameters.append(_parameter(name, hints, own.default))

    @wraps(command)
    def run(**given: Any) -> None:
        built = {
            name: kind(**{option.name: given.pop(option.name) for option in fields(kind)})
            for name, kind in groups.items()
        }
        command(**built, **given)

    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(name: str, types: dict[str, Any], default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])


def _default(option: Field[Any]) -> Any:
    return inspect.Parameter.empty if option.default is MISSING else option.default


@dataclass(frozen=True)
class DataOptions:
    """Which data."""

    data: Annotated[str, typer.Option(help="sphere, faces, cifar10, tiny-imagenet, or a folder of images.")]
    samples: Annotated[int, typer.Option(help="n, the number of training samples.")]
    dim: Annotated[int | None, typer.Option(help="d, for the sphere.")] = None
    subspace: Annotated[int | None, typer.Option(help="Sphere: draw inside a random subspace of r dimensions.")] = None
    labels: Annotated[str | None, typer.Option(help="Sphere: linear (noisy) or sign.")] = None
    noise: Annotated[float | None, typer.Option(help="Sphere: variance of the label noise (0.25).")] = None
    data_dir: Annotated[Path | None, typer.Option(help="The folder with cifar-10-batches-bin/ and the like.")] = None
    classes: Annotated[str | None, typer.Option(help="Comma-separated, e.g. frog,truck.")] = None
    per_class: Annotated[str | None, typer.Option(help="Comma-separated counts; default: an even split.")] = None
    side: Annotated[int | None, typer.Option(help="Average images down to side x side pixels.")] = None
    standardise: Annotated[
        str | None, typer.Option(help="subset (one mean and std), channels, cifar10-split or none.")
    ] = None
    norm: Annotated[str | None, typer.Option(help="sqrt-d: bring rows to norm sqrt(d); keep.")] = None
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32"

    def load(self, seed: int) -> "LoadedData":
        from exhume.data.load import load
        from exhume.data.wishes import data_config

        config = data_config(self, seed)
        return LoadedData(config, load(config))


@dataclass(frozen=True, eq=False)
class LoadedData:
    config: "DataConfig"
    dataset: "Dataset"

    @property
    def n(self) -> int:
        return len(self.dataset.inputs)

    @property
    def d(self) -> int:
        return self.dataset.inputs.shape[1]
