"""The methods of attack by name: exhume's own, one line each, and those of others.

Somebody else's method comes by call (`exhume.register_attack`) or, for every process, by an entry point of its package:

    [project.entry-points."exhume.attacks"]
    my-attack = "my_package.my_attack:MyAttack"

A method is loaded when it is asked for: names alone cost no import of torch. Several methods may share a name, if they
are for different observations; the first whose needs are met is taken.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from exhume.errors import UsageError
from exhume.extensions import load_point

if TYPE_CHECKING:
    from exhume.attacks.foundation.method import AnyMethod

GROUP = "exhume.attacks"
AUTO = "auto"

BUILT_IN = (
    ("split-newton", "exhume.attacks.single_layer.split_newton:SplitNewton"),
    ("heavy-ball", "exhume.attacks.heavy_ball:HeavyBall"),
    ("heavy-ball", "exhume.attacks.heavy_ball:ModuleHeavyBall"),
    ("subspace", "exhume.attacks.subspace.attack:SubspaceAttack"),
    ("image-prior", "exhume.attacks.prior.attack:ImagePrior"),
    ("dense-spans", "exhume.attacks.dense_spans.attack:DenseSpan"),
    ("module-newton", "exhume.attacks.modules.newton:ModuleNewton"),
    ("ntk", "exhume.attacks.tangent.newton:NtkAttack"),
    ("ntk", "exhume.attacks.tangent.any_depth:ModuleTangentAttack"),
    ("kkt", "exhume.attacks.tangent.newton:KktAttack"),
    ("silent-units", "exhume.attacks.silent.attack:SilentUnits"),
    ("rewind", "exhume.attacks.rewind.attack:Rewind"),
    ("firing-patterns", "exhume.attacks.firing.attack:FiringPatterns"),
    ("informed", "exhume.attacks.informed.attack:InformedAttack"),
    ("replay", "exhume.attacks.replay.attack:Replay"),
)

_registered: list[type["AnyMethod"]] = []


def register_attack(method: type["AnyMethod"]) -> type["AnyMethod"]:
    """Makes a method known under its name in this process; may decorate its class."""
    if method.name in method_names():
        raise UsageError(f"expected a new name for a method of attack, found {method.name!r}, which is taken")
    _registered.append(method)
    return method


def method_names() -> tuple[str, ...]:
    """All names, exhume's own first."""
    names = [name for name, _ in BUILT_IN]
    names += [point.name for point in _from_others()] + [method.name for method in _registered]
    return tuple(dict.fromkeys(names))


def known_methods() -> tuple[type["AnyMethod"], ...]:
    """Every method, in the order of their names."""
    return (*_loaded(), *_registered)


def methods_called(name: str) -> tuple[type["AnyMethod"], ...]:
    """Those of that name, at least one."""
    if name not in method_names():
        raise UsageError(f"expected a method out of {', '.join((AUTO, *method_names()))}, found {name!r}")
    return tuple(method for method in known_methods() if method.name == name)


@cache
def _from_others() -> tuple[EntryPoint, ...]:
    taken = {name for name, _ in BUILT_IN}
    return tuple(point for point in entry_points(group=GROUP) if point.name not in taken)


@cache
def _loaded() -> tuple[type["AnyMethod"], ...]:
    own = tuple(EntryPoint(name, where, GROUP) for name, where in BUILT_IN)
    return tuple(load_point(point, "a method of attack") for point in (*own, *_from_others()))
