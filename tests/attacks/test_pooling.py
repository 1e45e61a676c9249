import torch
from torch import Tensor

from exhume.attacks.running.pooling import pool
from exhume.reconstruction import Certificate, Outcome, Reconstruction

EYE = torch.eye(5)


def found(
    candidates: Tensor, confidence: tuple[float, ...], loss: float, seed: int, outcome: Outcome
) -> Reconstruction:
    coefficients = torch.arange(float(len(candidates)))[:, None] + 10 * seed
    certificate = Certificate(outcome, 2 * loss, 5, confidence)
    return Reconstruction(candidates, coefficients, "kkt", certificate, loss, 7, 3.0, 2.0, 1.0, seed)


def test_without_a_certain_run_a_pool_has_what_runs_agree_on_or_are_sure_of() -> None:
    runs = (
        found(EYE[:3], (0.1, 0.2, 0.9), 0.5, 0, Outcome.PARTIAL),
        found(-EYE[[3, 0]], (0.3, 0.4), 0.01, 1, Outcome.NOT_CONVERGED),
    )
    pooled = pool(runs)
    assert torch.equal(pooled.candidates.abs(), EYE[[0, 2]]), "both runs, then one that is sure; best agreement first"
    assert pooled.certificate.confidence == (0.4, 0.9)
    assert pooled.coefficients[:, 0].tolist() == [11, 2], "those of the surest member"
    assert pooled.outcome is Outcome.PARTIAL
    assert (pooled.iterations, pooled.passes, pooled.seconds) == (14, 6.0, 4.0)
    summary = pooled.summary()
    assert (summary["pooled_runs"], summary["judged_seed"]) == (2, 1), "the losses are those of the better fit"
    assert pooled.loss == 0.01
    assert summary["found_by_runs"] == [2, 1]
    assert summary["agreement"] == [1, 0.5]


def test_a_run_that_was_certain_is_the_result_whatever_others_add() -> None:
    runs = (
        found(EYE[:4], (0.2,) * 4, 1e-15, 0, Outcome.SPURIOUS),
        found(EYE[[4, 1]], (0.9, 0.8), 1e-13, 1, Outcome.RECOVERED),
    )
    pooled = pool(runs)
    assert torch.equal(pooled.candidates, EYE[[1, 4]]), "the order is that of the agreement"
    assert pooled.certificate.confidence == (0.8, 0.9)
    assert pooled.outcome is Outcome.RECOVERED
    assert pooled.loss == 1e-13
    assert pooled.summary()["found_by_runs"] == [2, 1]


def test_where_nobody_agrees_and_nobody_is_sure_everything_is_kept_and_nothing_called() -> None:
    runs = tuple(found(EYE[[seed]], (0.1,), 1.0 - seed / 4, seed, Outcome.NOT_CONVERGED) for seed in range(3))
    pooled = pool(runs)
    assert len(pooled.candidates) == 3
    assert pooled.outcome is Outcome.NOT_CONVERGED
    assert pooled.seed == 2
