"""The requests for victims by their names, as `exhume train` and sweeps take them."""

from exhume.errors import UsageError
from exhume_papers.making.network_request import (
    FactoryRequest,
    ResNetRequest,
    TwoLayerRequest,
    VisionTransformerRequest,
)
from exhume_papers.making.victim_request import GlmRequest, RandomFeaturesRequest, VictimRequest

KINDS: dict[str, type[VictimRequest]] = {
    "rf": RandomFeaturesRequest,
    "glm": GlmRequest,
    "two-layer": TwoLayerRequest,
    "resnet": ResNetRequest,
    "vit": VisionTransformerRequest,
}


def request_kind(kind: object) -> type[VictimRequest]:
    """The kind of request by the name of a victim, as `exhume train` takes it."""
    if isinstance(kind, str) and ":" in kind:
        return FactoryRequest
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"expected a kind out of {', '.join(KINDS)} or package.module:factory, found {kind!r}")
    return KINDS[kind]
