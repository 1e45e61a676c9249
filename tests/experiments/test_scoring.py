from pathlib import Path

import pytest
import torch

from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.experiments.run import RunFolder, Truth
from exhume.experiments.scoring import matched_pixels, paired_blocks, score
from exhume.features.ridge import RidgeFeatures
from exhume.metrics.errors import chance_error, reconstruction_error, signed_error
from exhume.metrics.images import image_scores
from exhume.metrics.matching import match, to_norm
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig


def trained(folder: Path, data: DataConfig, activation: str, bias: float = 0.0) -> RunFolder:
    train_run(folder, data, RandomFeaturesConfig(params=70, activation=activation, bias=bias), load(data))
    return RunFolder(folder)


def found(candidates: torch.Tensor) -> Reconstruction:
    return Reconstruction(
        candidates=candidates,
        coefficients=torch.ones(len(candidates), 1),
        method="by hand",
        certificate=Certificate(Outcome.PARTIAL, None, 0, ()),
        loss=0.0,
        iterations=0,
        passes=0.0,
        seconds=0.0,
        peak_memory_mb=0.0,
        seed=0,
    )


def perturbed(samples: torch.Tensor, size: float, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(samples.shape, generator=torch.Generator().manual_seed(seed))
    return samples + size * noise.to(samples.dtype)


SPHERE = DataConfig(name="sphere", samples=4, dim=9)
FACES = DataConfig(name="faces", samples=4, side=5)


@pytest.mark.parametrize(
    ("activation", "bias", "directions"),
    [("relu", 0.0, True), ("relu", 0.5, False), ("tanh", 0.0, False), ("linear", 0.0, True)],
)
def test_scores_are_the_metrics_called_by_hand(tmp_path: Path, activation: str, bias: float, directions: bool) -> None:
    """Weights of a homogeneous activation without bias say nothing about norms, so directions are compared."""
    run = trained(tmp_path / "run", SPHERE, activation, bias)
    truth, features = run.truth(), run.observation().ridge
    candidates = 3 * perturbed(truth.inputs, 0.3).flip(0)
    scores = score(truth, found(candidates), features, seed=5)
    compared = to_norm(candidates, 3.0) if directions else candidates
    samples = to_norm(truth.inputs, 3.0) if directions else truth.inputs
    assert scores.directions_only == directions
    assert scores.images is None
    summary = scores.summary()
    assert summary["error"] == pytest.approx(reconstruction_error(samples, compared), rel=1e-12)
    assert summary["signed_error"] == pytest.approx(signed_error(samples, compared), rel=1e-12)
    assert summary["chance_error"] == pytest.approx(chance_error(samples, 4, seed=5), rel=1e-12)
    assert summary["span_residual"] == pytest.approx(naive_span_residual(features, truth.inputs, candidates), rel=1e-4)


def naive_span_residual(features: RidgeFeatures, samples: torch.Tensor, candidates: torch.Tensor) -> float:
    of_samples, of_candidates = features(samples).double(), features(candidates).double()
    fitted = torch.linalg.lstsq(of_candidates.T, of_samples.T).solution
    left = of_samples.T - of_candidates.T @ fitted
    return float(left.norm(dim=0).mean() / features.p**0.5)


def test_the_truth_itself_scores_perfectly(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", FACES, "relu")
    truth = run.truth()
    scores = score(truth, found(-truth.inputs.flip(0)), run.observation().ridge)
    assert scores.evaluation.error < 1e-6
    assert scores.evaluation.recovered_fraction == 1
    assert scores.evaluation.signed_error == pytest.approx(
        signed_error(to_norm(truth.inputs, 5.0), -to_norm(truth.inputs, 5.0))
    )
    assert scores.images is not None
    assert scores.images.mean_ssim > 0.9999
    assert scores.summary()["mean_psnr"] == scores.images.mean_psnr


def test_pictures_are_scored_after_signs_and_norms_are_set_right(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", FACES, "relu")
    truth, features = run.truth(), run.observation().ridge
    candidates = perturbed(truth.inputs, 0.2)
    straight = score(truth, found(candidates), features)
    turned = score(truth, found(-7 * candidates[[2, 0, 3, 1]]), features)
    assert straight.images is not None
    assert turned.images is not None
    torch.testing.assert_close(turned.images.psnr, straight.images.psnr, rtol=1e-5, atol=1e-4)
    assert 5 < straight.images.mean_psnr < 60


def by_hand(truth: Truth, row: torch.Tensor, sample: int) -> torch.Tensor:
    """Pixels of a row that is brought to the norm of a sample."""
    aligned = row / row.norm() * truth.inputs[sample].norm()
    mean, std = truth.preparation.mean[:, None, None], truth.preparation.std[:, None, None]
    return ((aligned / truth.preparation.scale[sample]).reshape(1, 5, 5) * std + mean).clamp(0, 1)


def test_each_sample_is_shown_by_its_candidate_with_the_matched_sign(tmp_path: Path) -> None:
    truth = trained(tmp_path / "run", FACES, "relu").truth()
    near = perturbed(truth.inputs, 0.3)
    candidates = torch.stack([-near[3], 2 * near[0], near[2], -0.5 * near[1]])
    matching = match(truth.inputs, to_norm(candidates, 5.0), sign_free=True)
    assert matching.candidate.tolist() == [1, 3, 2, 0]
    assert matching.sign.tolist() == [1, -1, 1, -1]
    pixels = matched_pixels(truth, found(candidates), matching)
    for sample in range(4):
        torch.testing.assert_close(pixels[sample], by_hand(truth, near[sample], sample), rtol=1e-4, atol=1e-5)


def test_a_sample_without_a_candidate_is_shown_as_the_mean(tmp_path: Path) -> None:
    truth = trained(tmp_path / "run", FACES, "relu").truth()
    matching = match(truth.inputs, truth.inputs[1:2], sign_free=True)
    pixels = matched_pixels(truth, found(truth.inputs[1:2]), matching)
    originals = truth.preparation.to_pixels(truth.inputs, truth.preparation.scale)
    torch.testing.assert_close(pixels[1], originals[1])
    for sample in (0, 2, 3):
        torch.testing.assert_close(pixels[sample], truth.preparation.mean.expand(25).reshape(1, 5, 5))
    assert image_scores(originals, pixels).psnr[1] > 60


def test_blocks_of_both_sides_are_the_features_of_both_sides(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", SPHERE, "tanh", bias=0.5)
    features, samples = run.observation().ridge, run.truth().inputs
    candidates = perturbed(samples, 1.0)[:2]
    pairs = list(paired_blocks(features, samples, candidates))
    torch.testing.assert_close(torch.cat([pair[0] for pair in pairs], dim=1), features(samples))
    torch.testing.assert_close(torch.cat([pair[1] for pair in pairs], dim=1), features(candidates))
