"""Which method to run, by what was asked for and by what there is to attack.

A subspace and a prior are wrapped around a method. Where a name stands for such a composition (`subspace`,
`image-prior`), it is spelled out first.
"""

from collections.abc import Callable
from dataclasses import replace

from exhume.attacks.foundation.method import AnyMethod
from exhume.attacks.foundation.outline import Outline, Source
from exhume.attacks.prior.attack import ImagePrior
from exhume.attacks.prior.spectrum import FrequencySpectrum
from exhume.attacks.registry import AUTO, known_methods, methods_called
from exhume.attacks.running.settings import AttackSettings
from exhume.attacks.subspace.attack import SubspaceAttack, require_first_layer
from exhume.errors import UsageError
from exhume.observation import Observation

Look = Callable[[type[AnyMethod]], Outline]
"""What a method sees of the observation, in outline."""


def choose(settings: AttackSettings, look: Look) -> AnyMethod:
    """The method with its options and what is wrapped around it; what does not go together is refused in one line."""
    if not isinstance(settings.method, str):
        if settings.options:
            raise UsageError(f"expected hyperparameters in the method, found {', '.join(settings.options)} beside it")
        return _wrapped(settings.method, settings, look(type(settings.method)), insist=True)
    kind = _automatic(settings, look) if settings.method == AUTO else _called(settings.method, look)
    insist, outline = settings.method != AUTO or settings.subspace is not None, look(kind)
    for name, value in kind.stands_for.items():
        if name == "method":
            kind = methods_called(value)[0]
        elif name == "subspace":
            settings = replace(settings, subspace=settings.subspace or _known_subspace(outline))
        else:
            settings = replace(settings, prior=value)
    _check_options(kind, settings, outline)
    return _wrapped(kind.build(settings.options), settings, outline, insist)


def withhold_count(observation: Observation, method: AnyMethod, samples: int | None) -> Observation:
    """The observation as this method may see it: the number of samples is withheld unless the method needs it."""
    if samples is None and method.needs_samples:
        return observation
    return observation.knowing(samples)


def _called(name: str, look: Look) -> type[AnyMethod]:
    """Of the methods of that name the one that is for such an observation."""
    found = methods_called(name)
    fitting = (kind for kind in found if kind.refusal(look(kind)) is None)
    kind = next(fitting, None)
    if kind is None:
        raise UsageError(found[0].refusal(look(found[0])) or name)
    return kind


def _automatic(settings: AttackSettings, look: Look) -> type[AnyMethod]:
    """The first choice that can do what is asked; where none can, the last, which will say why."""
    ordered = sorted((kind for kind in known_methods() if kind.auto_place is not None), key=_auto_place)
    chosen: type[AnyMethod] | None = None
    for kind in ordered:
        if kind.first_choice(look(kind)):
            chosen = kind
            if settings.asked <= _abilities(kind):
                return kind
    if chosen is None:
        raise UsageError("expected an observation that a method is for, found none; name one with --method")
    return chosen


def _auto_place(kind: type[AnyMethod]) -> int:
    assert kind.auto_place is not None
    return kind.auto_place


def _abilities(kind: type[AnyMethod]) -> frozenset[str]:
    """What "auto" may give a method to do. One that reads layers alone has no use for what is about the head."""
    if kind.attacked is None:
        return frozenset(kind.hyperparameters())
    around = {"subspace", "prior"} if kind.lowers or "subspace" in kind.stands_for else set()
    products = {"products"} if kind.coarse_products else set()
    return frozenset(kind.hyperparameters()) | around | products | {"samples", "pool"}


def _check_options(kind: type[AnyMethod], settings: AttackSettings, outline: Outline) -> None:
    for name in settings.options:
        if name in kind.hyperparameters():
            continue
        owners = [other for other in known_methods() if name in other.hyperparameters() and not other.stands_for]
        if not owners:
            continue  # nobody's: `build` says what there is
        flag = owners[0].hyperparameters()[name].flag
        if any(owner.name == kind.name for owner in owners):
            raise UsageError(f"expected no {flag} with {kind.name} on {outline.kind}, found it; leave it out")
        named = settings.method if settings.method != AUTO else f"{AUTO}, which is {kind.name} here"
        names = " or ".join(dict.fromkeys(owner.name for owner in owners))
        raise UsageError(f"expected {flag} with --method {names}, found {named}; leave it out")


def _known_subspace(outline: Outline) -> Source:
    if outline.subspace is None:
        raise UsageError(
            "expected a subspace, found an observation that knows none; give --subspace moments or FILE, or train with "
            "--knows-first-layer"
        )
    return outline.subspace


def _wrapped(method: AnyMethod, settings: AttackSettings, outline: Outline, insist: bool) -> AnyMethod:
    source = settings.subspace
    within = None if source in (None, *method.own_subspaces) else _in_subspace(method, source, outline, insist)
    if settings.prior == "none":
        return within or method
    _check_prior(method, source, outline)
    return ImagePrior(settings.spectrum or FrequencySpectrum(), method, within, settings.resolution)


def _in_subspace(method: AnyMethod, source: Source | None, outline: Outline, insist: bool) -> SubspaceAttack:
    assert source is not None
    if not method.lowers:
        refusal = SubspaceAttack.refusal(outline)
        instead = "give a FILE, or leave it out" if "given" in method.own_subspaces else "leave it out"
        raise UsageError(refusal or f"expected no --subspace with {method.name}, found {source!r}; {instead}")
    if source == "first-layer":
        require_first_layer(outline.subspace is not None)
    return SubspaceAttack(source, method, insist)


def _check_prior(method: AnyMethod, source: Source | None, outline: Outline) -> None:
    """It goes around a search that can go on from what the prior found, in the whole space or in a known subspace."""
    if source == "moments":
        raise UsageError(
            "expected --prior image in the whole space or in a known subspace, found one from moments, which is only a "
            "start; leave --subspace out, or the prior"
        )
    if not method.takes_starts:
        raise UsageError(
            f"expected --prior image with --method split-newton, found {method.name}; leave one of them out"
        )
    if outline.image_shape is None:
        raise UsageError("expected an observation of images for --prior image, found other data; leave it out")
