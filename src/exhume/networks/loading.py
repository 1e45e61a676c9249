"""Modules of other people: load them, load weights into them, and put them into a state that can be attacked."""

import importlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from exhume.errors import ExhumeError, UsageError

LISTED = 8  # names in one line of an error
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def names_a_factory(spec: str) -> bool:
    """
    >>> names_a_factory("my.models:small"), names_a_factory("my.models"), names_a_factory("my models:small")
    (True, False, False)
    """
    module_name, _, attribute = spec.partition(":")
    return all(part.isidentifier() for part in (*module_name.split("."), attribute))


def load_factory(
    spec: str, folder: Path | None = None, arguments: Mapping[str, Any] = MappingProxyType({})
) -> nn.Module:
    """Calls the factory named `package.module:factory`; modules are also looked for in `folder` (default: here)."""
    if not names_a_factory(spec):
        raise UsageError(f"expected a model as package.module:factory, found {spec!r}")
    module_name, _, attribute = spec.partition(":")
    with _importable(Path.cwd() if folder is None else folder):
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as problem:
            raise UsageError(
                f"expected a module {module_name} that can be imported, found: {_line_of(problem)}"
            ) from problem
        factory = getattr(module, attribute, None)
        if factory is None:
            found = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise UsageError(f"expected {attribute!r} in the module {module_name}, found {_listed(found)}")
        if not callable(factory):
            raise UsageError(f"expected {spec} to be a factory to call, found {_kind_of(factory)}")
        try:
            model = factory(**arguments)
        except (Exception, SystemExit) as problem:
            given = f"with {', '.join(arguments)}" if arguments else "without arguments"
            raise UsageError(f"expected {spec} to work when called {given}, found: {_line_of(problem)}") from problem
    if not isinstance(model, nn.Module):
        raise UsageError(f"expected {spec} to return a torch.nn.Module, found {_kind_of(model)}")
    return model


def load_state(
    model: nn.Module, state: Mapping[str, Tensor], source: str = "the weights", without: Collection[str] = ()
) -> None:
    """Copies weights into the model; tensors that are missing, left over or of another shape are named in one line.

    Tensors named in `without` may be missing, and stay as they are.
    """
    own = model.state_dict()
    needed = [name for name in own if name in state or name not in without]
    wrong = [f"no {name} {_shape(own[name])}" for name in needed if name not in state]
    wrong += [
        f"{name} {_shape(state[name])} instead of {_shape(tensor)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    wrong += [
        f"{name} in {_dtype(state[name])}"
        for name, tensor in own.items()
        if name in state and tensor.is_floating_point() and not state[name].is_floating_point()
    ]
    wrong += [f"{name} that the model does not have" for name in state if name not in own]
    if wrong:
        raise ExhumeError(f"expected {source} to fit the model, found {_listed(wrong)}")
    broken = [name for name in needed if own[name].is_floating_point() and not state[name].isfinite().all()]
    if broken:
        raise ExhumeError(f"expected finite numbers in {source}, found NaN or infinite ones in {_listed(broken)}")
    model.load_state_dict(state, strict=False)


def with_statistics_of(trained: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The initial weights with the running statistics of the trained ones.

    Fresh statistics (0 and 1) are those of no data: training normalises by its batches from the first step on, and the
    trained statistics are the nearest to theirs that a model keeps.
    """
    return {
        name: trained[name] if name.endswith(STATISTICS) and name in trained else value
        for name, value in initial.items()
    }


def prepare_for_attack(model: nn.Module) -> str | None:
    """Puts the model into evaluation mode and says what that does to dropout and batch norm, if it has any."""
    dropping = [name for name, layer in model.named_modules() if _drops(layer)]
    batch_norms = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, nn.modules.batchnorm._NormBase)
    }
    mixing = [name for name, layer in batch_norms.items() if layer.running_mean is None]
    if mixing:
        raise UsageError(
            f"expected batch norm with running statistics, found none in {_listed(mixing)}: the features of a sample "
            "would depend on the other samples; use track_running_stats=True"
        )
    model.eval()
    said = []
    if dropping:
        said.append(f"dropout is switched off in {_listed(dropping)}")
    if batch_norms:
        said.append(f"batch norm uses its running statistics in {_listed(batch_norms)}")
    return f"evaluation mode: {' and '.join(said)}" if said else None


def check_inputs(inputs: Tensor) -> None:
    if not inputs.is_floating_point():
        raise UsageError(
            f"expected inputs in floating point, found {_dtype(inputs)}; convert pixels with x.float() / 255"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, and then each layer in its own mode again."""
    modes = {layer: layer.training for layer in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """A command's own folder is not on Python's path, and a user's module usually lies where the command is run."""
    place = str(folder)
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)


def _drops(layer: nn.Module) -> bool:
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    return isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0


def _line_of(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _kind_of(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _shape(tensor: Tensor) -> str:
    return "x".join(str(side) for side in tensor.shape) or "scalar"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more if every else "nothing to choose from"
