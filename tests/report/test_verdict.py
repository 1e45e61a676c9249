import re

import pytest

from exhume.reconstruction import Outcome
from exhume.report.verdict import Case, verdict


def _sentence(outcome: Outcome, candidates: int = 5, held_out_loss: float | None = 0.03, **rest: int) -> str:
    return verdict(Case(outcome, candidates, "image", held_out_loss, 300, **rest))["sentence"]


@pytest.mark.parametrize("outcome", Outcome)
def test_where_the_truth_is_known_what_was_recovered_decides_whatever_the_attack_says(outcome: Outcome) -> None:
    assert _sentence(outcome, samples=5, recovered=5) == "Yes: 5 of 5 training images were recovered from the weights."
    assert (
        _sentence(outcome, samples=5, recovered=1) == "Partly: 1 of 5 training images was recovered from the weights."
    )
    assert _sentence(outcome, samples=1, recovered=1) == "Yes: 1 of 1 training image was recovered from the weights."
    assert _sentence(outcome, samples=5, recovered=0).startswith("Inconclusive: ")


@pytest.mark.parametrize(
    ("outcome", "start"),
    [
        (Outcome.RECOVERED, "Yes: 5 training images were recovered, as weights kept from the attack confirm."),
        (Outcome.PARTIAL, "Partly: 5 candidates explain 97 % of the weights kept from the attack"),
        (Outcome.SPURIOUS, "Inconclusive: the candidates fit the weights that the attack used but not those kept"),
        (
            Outcome.NOT_CONVERGED,
            "Inconclusive: the attack did not converge; this does not mean the model is safe.",
        ),
    ],
)
def test_without_the_truth_the_outcome_decides(outcome: Outcome, start: str) -> None:
    assert _sentence(outcome).startswith(start)


def test_an_attack_that_did_not_converge_says_so_with_and_without_truth() -> None:
    expected = "Inconclusive: the attack did not converge; this does not mean the model is safe."
    assert _sentence(Outcome.NOT_CONVERGED, samples=5, recovered=0) == expected


def test_a_fit_that_nothing_was_held_out_for_does_not_claim_that_held_out_weights_refute_it() -> None:
    assert "no weights were held out" in _sentence(Outcome.SPURIOUS, held_out_loss=None)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("counts", [{}, {"samples": 5, "recovered": 0}, {"samples": 5, "recovered": 5}])
def test_no_verdict_calls_a_model_safe(outcome: Outcome, counts: dict[str, int]) -> None:
    told = verdict(Case(outcome, 5, "image", 0.03, 300, **counts))
    for text in (told["sentence"], told["confidence"]):
        assert not re.search(r"\bsafe\b", text.replace("does not mean the model is safe", ""))


def test_confidence_falls_from_yes_to_inconclusive() -> None:
    levels = [
        verdict(Case(outcome, 5, "image", 0.03, 300))["confidence"].split()[0].rstrip(":")
        for outcome in (Outcome.RECOVERED, Outcome.PARTIAL, Outcome.NOT_CONVERGED)
    ]
    assert levels == ["High", "Medium", "Low"]
