"""The sentences of a report: what was shown, how sure that is, what was not tested.

A verdict is Yes, Partly or Inconclusive. There is no "no": an attack that fails says nothing of a better one.
"""

from dataclasses import dataclass
from typing import Any, Literal

from exhume.observation import Observation
from exhume.reconstruction import Outcome, Reconstruction
from exhume.report.numbers import percent, plain

Answer = Literal["Yes", "Partly", "Inconclusive"]
NOT_CONVERGED = "the attack did not converge; this does not mean the model is safe."


@dataclass(frozen=True)
class Case:
    """What a verdict depends on. `recovered` and `samples` are None where there is no truth to count with."""

    outcome: Outcome
    candidates: int
    noun: str
    held_out_loss: float | None
    held_out_rows: int
    samples: int | None = None
    recovered: int | None = None


def verdict(case: Case) -> dict[str, str]:
    answer, rest = _against_truth(case) if case.recovered is not None else _without_truth(case)
    return {
        "answer": answer,
        "sentence": f"{answer}: {rest}",
        "confidence": _confidence(case, answer),
        "outcome": case.outcome.value,
        "advice": case.outcome.advice,
    }


def _against_truth(case: Case) -> tuple[Answer, str]:
    if case.recovered and case.samples:
        noun = _training(case, case.samples)
        counted = f"{case.recovered:,} of {case.samples:,} {noun} {'was' if case.recovered == 1 else 'were'} recovered"
        return "Yes" if case.recovered == case.samples else "Partly", f"{counted} from the weights."
    none = f"none of the {case.samples:,} {_training(case, case.samples or 0)}"
    return "Inconclusive", {
        Outcome.NOT_CONVERGED: NOT_CONVERGED,
        Outcome.SPURIOUS: f"the attack fitted the weights with candidates that are {none}; "
        "another attack may still find them.",
        Outcome.PARTIAL: f"the candidates explain a part of the weights, but {none} was recovered so far; "
        "more time or another start may change this.",
        Outcome.RECOVERED: f"the candidates explain the weights, but {none} is among them; "
        "other data can give the same weights, and a prior may tell them apart.",
    }[case.outcome]


def _without_truth(case: Case) -> tuple[Answer, str]:
    found = f"{case.candidates:,} {_training(case, case.candidates)}"
    if case.outcome is Outcome.RECOVERED:
        return "Yes", f"{found} {_were(case)} recovered, as weights kept from the attack confirm."
    if case.outcome is Outcome.PARTIAL and case.held_out_loss is not None:
        share = percent(1 - case.held_out_loss)
        candidates = f"{case.candidates:,} candidate{'' if case.candidates == 1 else 's'}"
        return (
            "Partly",
            f"{candidates} explain{'s' if case.candidates == 1 else ''} {share} of the weights kept from "
            "the attack, so part of the training data is exposed.",
        )
    if case.outcome is Outcome.NOT_CONVERGED:
        return "Inconclusive", NOT_CONVERGED
    if case.held_out_loss is None:
        return "Inconclusive", "the candidates fit the weights, but no weights were held out to confirm them."
    return "Inconclusive", (
        "the candidates fit the weights that the attack used but not those kept from it, so they are not the training "
        "data; another attack may still find it."
    )


def _confidence(case: Case, answer: Answer) -> str:
    unseen = "No weights were held out."
    if case.held_out_loss is not None:
        unseen = (
            f"On {case.held_out_rows:,} weights that the attack never used, the candidates miss a share of "
            f"{plain(case.held_out_loss)} (0: all explained, 1: as good as nothing)."
        )
    if answer == "Inconclusive":
        return f"Low: an attack that fails says little of a better one. {unseen}"
    if case.recovered is not None:
        return f"High: the candidates were compared with the true {_training(case, 2)}. {unseen}"
    if answer == "Yes":
        return f"High for the set as a whole, without any look at the training data. {unseen}"
    return f"Medium: which of the candidates are right was not checked. {unseen}"


def _training(case: Case, count: int) -> str:
    return f"training {case.noun}{'' if count == 1 else 's'}"


def _were(case: Case) -> str:
    return "was" if case.candidates == 1 else "were"


def not_tested(found: Reconstruction, observation: Observation, has_truth: bool) -> list[str]:
    """What the reader must not take for tested."""
    told = told_samples(found, observation)
    gaps = [
        f"Attacks other than {found.method}, and other starts than seed {found.seed}.",
        "Membership inference, attribute inference, and attacks through the model's answers alone (black-box).",
        "Attackers who also hold public data of the same kind or a learned image prior.",
        "Defences: none was applied, so none was audited again.",
    ]
    if told is not None:
        gaps.append("An attacker who must find out the number of samples.")
    if not has_truth:
        gaps.append("The true training data were not there to compare with: single candidates may be wrong.")
    gaps.append("Samples with a very small coefficient leave hardly a trace in the weights and can be missed.")
    return gaps


def knowledge(found: Reconstruction, observation: Observation) -> list[dict[str, Any]]:
    """What the attacker had, as a tick-list."""
    told, norm = told_samples(found, observation), observation.knowledge.norm
    prior = found.settings.get("prior")
    return [
        _item(True, f"The trained weights ({observation.p:,} numbers; white-box, after training)"),
        _item(True, f"The features: {observation.features.description}"),
        _item(True, f"The weights before training ({observation.knowledge.initial})"),
        _item(told is not None, "The number of training samples" + ("" if told is None else f" ({told:,})")),
        _item(norm is not None, "The norm of the training rows" + ("" if norm is None else f" ({plain(norm)})")),
        _item(observation.image_shape is not None, "The shape of the images (to display them)"),
        _item(prior not in (None, "none"), "A prior on the data" + (f" ({prior})" if prior else "")),
        _item(False, "The labels"),
        _item(False, "Any training sample, or the seed that drew them"),
    ]


def told_samples(found: Reconstruction, observation: Observation) -> int | None:
    """The number of samples that this attack was told, which may be less than the observation holds."""
    told: int | None = found.settings.get("samples", observation.knowledge.samples)
    return told


def _item(known: bool, what: str) -> dict[str, Any]:
    return {"known": known, "what": what}


def model_card(content: dict[str, Any]) -> str:
    """A paragraph for the model card, in the words of NIST AI 100-2 and OWASP ML03:2023."""
    artefact, gauge, attack = content["artefact"], content["gauge"], content["attack"]
    size = f"p = {plain(gauge['p'])} parameters, d = {plain(gauge['d'])} numbers a sample"
    if gauge["n"] is not None:
        size += f", n = {plain(gauge['n'])} samples, p/(dn) = {plain(gauge['ratio'])}"
    checked = "no weights held out"
    if attack["held_out_loss"] is not None:
        checked = f"{plain(attack['held_out_loss'])} on {attack['held_out_rows']:,} held-out weights"
    return (
        f"Data reconstruction (white-box, after training; NIST AI 100-2 E2025, OWASP ML03:2023). "
        f"On {attack['finished'][:10]} the weights of this model (SHA-256 {artefact['sha256'][:16]}..., {size}) were "
        f"attacked with exhume {artefact['version']}, method {attack['method']}, seed {attack['seed']}. "
        f"{content['verdict']['sentence']} "
        f"Unexplained share of the weights: {plain(attack['loss'])} on those used, {checked}. "
        f"Not covered: other attacks, membership inference, black-box access, defences."
    )
