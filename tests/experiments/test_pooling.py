import torch
from torch import Tensor

from exhume.experiments.pooling import pool
from exhume.reconstruction import Certificate, Outcome, Reconstruction


def found(candidates: Tensor, confidence: tuple[float, ...], unseen: float, seed: int) -> Reconstruction:
    coefficients = torch.arange(float(len(candidates)))[:, None] + 10 * seed
    certificate = Certificate(Outcome.PARTIAL if unseen < 0.1 else Outcome.NOT_CONVERGED, unseen, 5, confidence)
    return Reconstruction(candidates, coefficients, "kkt", certificate, unseen, 7, 3.0, 2.0, 1.0, seed)


def test_a_pool_has_what_runs_agree_on_with_its_surest_members() -> None:
    eye = torch.eye(4)
    runs = (found(eye[:3], (0.1, 0.2, 0.9), 0.5, 0), found(-eye[[3, 0]], (0.3, 0.8), 0.01, 1))
    pooled = pool(runs)
    first = pooled.reconstruction
    assert pooled.clusters[0].size == 2
    assert torch.equal(first.candidates[0].abs(), eye[0])
    assert first.certificate.confidence[0] == 0.8
    assert first.coefficients[0].item() == 11, "those of the second run's candidate 1"
    assert len(first.candidates) == 4
    assert first.outcome is Outcome.PARTIAL, "that of the run which predicts its held-out weights best"
    assert (first.iterations, first.passes, first.seconds) == (14, 6.0, 4.0)
    summary = first.summary()
    assert summary["pooled_runs"] == 2
    assert summary["cluster_sizes"] == [2, 1, 1, 1]
    assert summary["agreement"][0] == 1
