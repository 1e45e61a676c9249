"""Pieces that an attack brought back, made into whole inputs where that is certain.

Patches that overlap are assembled (`assembling.py`), embeddings are taken back through their extractor
(`inversion.py`). Only pieces that are called recovered take part. The result counts if every one of them became part of
an input; otherwise the pieces stay what was found, and the result says how many inputs could be made of them.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhume import seeds
from exhume.attacks.silent.assembling import assemble, overlaps
from exhume.attacks.silent.inversion import invert, invertible
from exhume.observation import Observation
from exhume.readings import Embeddings, Patches
from exhume.reconstruction import Reconstruction

SURE = 0.5


def whole_inputs(found: Reconstruction, observation: Observation) -> Reconstruction:
    """The same result, its candidates as inputs if all pieces that are called recovered could be made into some."""
    if "inputs_made" in found.facts:
        return found
    layer = next((layer for layer in observation.layers if layer.name == found.facts.get("layer")), None)
    reading = None if layer is None else layer.reading
    sure = (torch.tensor(found.certificate.confidence) >= SURE).nonzero()[:, 0]
    if reading is None or found.facts.get("reads") == "inputs" or found.facts["directions_only"] or not len(sure):
        return found
    pieces = found.candidates[sure]
    if isinstance(reading, Patches) and overlaps(reading):
        built = assemble(pieces, reading)
        count = f"{len(built.images)} image{'' if len(built.images) == 1 else 's'}"
        note = f"{len(sure) - len(built.left)} of {len(sure)} patches overlap into {count}"
        whole = not built.left and not built.unseen
        shown = _shown(found, built.images, sure[built.members], note, whole)
        return replace(shown, image_shape=reading.image_shape) if whole else shown
    if isinstance(reading, Embeddings) and invertible(reading.extractor):
        accuracy = found.facts.get("expected_error") or 0.0
        inverted = invert(reading.extractor, pieces, accuracy, seeds.generator(found.seed, "start"))
        exact = inverted.exact
        note = f"{int(exact.sum())} of {len(sure)} embeddings lead back through the extractor to one input each"
        shown = _shown(found, inverted.inputs[exact], sure[exact][:, None], note, bool(exact.all()))
        if not bool(exact.all()):
            return shown
        worst = float(inverted.expected_error[exact].max())
        facts = {**shown.facts, "expected_error": worst}
        return replace(shown, facts=facts, image_shape=observation.image_shape)
    return found


def _shown(
    found: Reconstruction, inputs: Float[Tensor, "k d"], members: Int[Tensor, "k v"], note: str, whole: bool
) -> Reconstruction:
    """An input is as sure as the least sure of its pieces. A piece may be part of several inputs."""
    said = "; ".join(part for part in (found.facts.get("subspace"), note) if part)
    facts = {**found.facts, "subspace": said, "inputs_made": len(inputs)}
    if not whole:
        return replace(found, facts=facts)
    confidences = torch.tensor(found.certificate.confidence, dtype=torch.float64)
    confidence = tuple(confidences[members].amin(dim=1).tolist())
    return replace(
        found,
        pieces=found,
        candidates=inputs.to(found.candidates.dtype),
        coefficients=found.coefficients[members].double().norm(dim=1).to(found.coefficients.dtype),
        certificate=replace(found.certificate, confidence=confidence),
        facts={**facts, "reads": "inputs", "pieces": len(found.candidates), "pieces_trusted": len(members.unique())},
    )
