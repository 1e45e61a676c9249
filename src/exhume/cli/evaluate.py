"""`exhume evaluate`: hold a reconstruction against the truth of its run."""

from typing import TYPE_CHECKING

from exhume.cli.output import print_json, say
from exhume.requests.run_folder import EvaluateRequest

if TYPE_CHECKING:
    from exhume.experiments.scoring import Scores


def evaluate(request: EvaluateRequest, json: bool) -> None:
    """Compare what was recovered in RUN with the data it was trained on (rho of Eq. 12, chance level, span residual).

    Example: exhume evaluate runs/a --json
    """
    from exhume.errors import ExhumeError
    from exhume.experiments.run import RunFolder
    from exhume.experiments.scoring import score_run

    folder = RunFolder.existing(request.run)
    if not folder.has_truth():
        raise ExhumeError(
            f"expected truth.safetensors in {request.run}, found none; only victims made by exhume carry it"
        )
    with folder.alone("this evaluation"):
        scores = score_run(folder, factory=request.model)
        summary = folder.update_summary(scores.summary())
    say_scores(scores, json)
    if summary.get("floor"):
        say(
            f"floor: the true data leave {summary['floor']:.1e} of the weights unexplained, the candidates "
            f"{summary['loss']:.1e}",
            json,
        )
    if json:
        print_json(summary)


def say_scores(scores: "Scores", json: bool) -> None:
    found = scores.evaluation
    say(
        f"error rho = {found.error:.3g} (chance {found.chance_error:.3g}), without sign freedom "
        f"{found.signed_error:.3g}, span residual {found.span_residual:.2g}",
        json,
    )
    recovered = round(found.recovered_fraction * found.n)
    say(
        f"{recovered} of {found.n} samples are within 0.1 sqrt(d) of a candidate, {scores.recognised} have a cosine "
        "above 0.9 with one",
        json,
    )
    if scores.images is not None:
        say(f"as pictures: PSNR {scores.images.mean_psnr:.1f} dB, SSIM {scores.images.mean_ssim:.3f}", json)
    coarse = scores.low_resolution
    if coarse is not None:
        recovered = round(coarse.recovered_fraction * found.n)
        say(
            f"at {coarse.frequencies:,} frequencies: {recovered} of {found.n} samples have a candidate with cosine "
            f"above 0.9 (mean {coarse.cosines.mean().item():.3f}); {coarse.lookalikes:.0%} have another sample so near",
            json,
        )
    if scores.directions_only:
        say(
            "norms: directions are compared, because the features grow with the norm of their input: weights cannot "
            "tell a norm from a coefficient",
            json,
        )
