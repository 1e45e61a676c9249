"""A reconstruction held against the truth of its own run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhume.experiments.known_samples import unknown_part
from exhume.experiments.run import RunFolder, Truth
from exhume.features.module import ModuleFeatures
from exhume.features.ridge import RidgeFeatures
from exhume.metrics.errors import Evaluation, evaluate
from exhume.metrics.images import ImageScores, image_scores
from exhume.metrics.low_resolution import LowResolution, low_resolution
from exhume.metrics.matching import Matching, recognised
from exhume.reconstruction import Reconstruction


@dataclass(frozen=True, eq=False)
class Scores:
    evaluation: Evaluation
    images: ImageScores | None
    directions_only: bool
    low_resolution: LowResolution | None = None
    """Where the attack said at which resolution its result is to be trusted."""
    recognised: int = 0
    """Samples with a candidate of |cosine| above 0.9."""

    def summary(self) -> dict[str, Any]:
        """The keys of summary.json that an evaluation answers for."""
        values = {
            "error": self.evaluation.error,
            "signed_error": self.evaluation.signed_error,
            "chance_error": self.evaluation.chance_error,
            "recovered_fraction": self.evaluation.recovered_fraction,
            "span_residual": self.evaluation.span_residual,
            "recognised": self.recognised,
        }
        if self.images is not None:
            values |= {"mean_psnr": self.images.mean_psnr, "mean_ssim": self.images.mean_ssim}
        if self.low_resolution is not None:
            values |= {
                "low_resolution_cosine": self.low_resolution.cosines.mean().item(),
                "low_resolution_recovered": self.low_resolution.recovered_fraction,
                "low_resolution_lookalikes": self.low_resolution.lookalikes,
            }
        return values


def score_run(run: RunFolder, seed: int = 0, factory: str | None = None) -> Scores:
    """`factory` names code of the user's own that may run to make the features."""
    truth, found, observation = run.truth(), run.reconstruction(), run.observation(factory)
    if found.method == "informed":  # what was known is not a finding
        truth = unknown_part(run, truth)
    return score(truth, found, observation.features, seed)


def score(truth: Truth, found: Reconstruction, features: RidgeFeatures | ModuleFeatures, seed: int = 0) -> Scores:
    """Weights of homogeneous features cannot tell a norm from a coefficient: directions are compared."""
    directions_only = bool(found.facts.get("directions_only", features.norm_blind))
    blocks = paired_blocks(features, truth.inputs, found.candidates.to(truth.inputs.dtype))
    evaluation = evaluate(
        truth.inputs, found.candidates.to(truth.inputs.dtype), blocks, features.p, seed, directions_only
    )
    images = None
    if truth.image_shape is not None and min(truth.image_shape[1:]) >= 3:
        originals = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
        images = image_scores(originals, matched_pixels(truth, found, evaluation.matching))
    coarse, resolution = None, found.facts.get("resolution")
    if truth.image_shape is not None and resolution is not None and "frequencies" in resolution:
        coarse = low_resolution(truth.inputs, found.candidates, truth.image_shape, resolution["frequencies"])
    return Scores(evaluation, images, directions_only, coarse, recognised=recognised(truth.inputs, found.candidates))


def matched_pixels(truth: Truth, found: Reconstruction, matching: Matching) -> Float[Tensor, "n c h w"]:
    """The candidate of each sample as a picture, with the matched sign and at the norm of the sample.

    A sample without a candidate is shown as the mean of the data.
    """
    matched = matching.candidate >= 0
    aligned = torch.zeros_like(truth.inputs)
    rows = found.candidates.to(aligned)[matching.candidate[matched]]
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    signs = matching.sign[matched].to(rows)[:, None]
    aligned[matched] = rows * signs * (truth.inputs[matched].norm(dim=1, keepdim=True) / lengths)
    return truth.preparation.to_pixels(aligned, truth.preparation.scale)


def paired_blocks(
    features: RidgeFeatures | ModuleFeatures, samples: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"]
) -> Iterator[tuple[Float[Tensor, "n rows"], Float[Tensor, "m rows"]]]:
    """Features of samples and candidates together: one pass over V, or one evaluation of a network, for both."""
    both = torch.cat([samples, candidates])
    for _, values in features.feature_blocks(both):
        yield values[: len(samples)], values[len(samples) :]
