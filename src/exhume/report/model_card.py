"""A paragraph for the model card, in the words of NIST AI 100-2 and OWASP ML03:2023."""

from typing import Any

from exhume.report.defences import for_the_model_card
from exhume.report.numbers import plain


def model_card(content: dict[str, Any]) -> str:
    artefact, gauge = content["artefact"], content["gauge"]
    size = f"{counted(gauge)}, d = {plain(gauge['d'])} numbers per sample"
    if gauge["n"] is not None:
        size += f", n = {plain(gauge['n'])} samples, p/(dn) = {plain(gauge['ratio'])}"
    return (
        f"Data reconstruction (white-box, after training; NIST AI 100-2 E2025, OWASP ML03:2023). "
        f"The weights of this model (SHA-256 {artefact['sha256'][:16]}..., {size}) were attacked "
        f"{_how(content)}. {content['verdict']['sentence']} {_control(content)}{_what_was_left(content)}"
        f"{for_the_model_card(content['defences'])}{_what_if(content)} "
        f"Not covered: other attacks, other defences, membership inference, black-box access."
    )


def counted(gauge: dict[str, Any]) -> str:
    """The size of the model, and p: a network has more parameters than its last layer gives equations.

    >>> counted({"p": 65, "last_layer": 130, "parameters": 28694})
    '28,694 parameters; the last layer gives p = 65 independent equations'
    >>> counted({"p": 60, "last_layer": 60, "parameters": 60})
    'p = 60 parameters'
    """
    if gauge["parameters"] == gauge["p"]:
        return f"p = {plain(gauge['p'])} parameters"
    return (
        f"{plain(gauge['parameters'])} parameters; the last layer gives p = {plain(gauge['p'])} independent equations"
    )


def _how(content: dict[str, Any]) -> str:
    version, attack = content["artefact"]["version"], content["attack"]
    if attack is None:
        return f"with exhume {version}, no method of which applied, on {content['written'][:10]}"
    return f"with exhume {version}, method {attack['method']}, seed {attack['seed']}, on {attack['finished'][:10]}"


def _control(content: dict[str, Any]) -> str:
    control = content["control"]
    if not control:
        return ""
    return f"Of {control['samples']:,} control records that were not trained on, {control['recovered']:,} came back. "


def _what_was_left(content: dict[str, Any]) -> str:
    attack = content["attack"]
    if attack is None:
        return ""
    checked = "no weights held out"
    if attack["held_out_loss"] is not None:
        checked = f"{plain(attack['held_out_loss'])} on {attack['held_out_rows']:,} {attack['held_out']} held out"
    return f"Unexplained share of the weights: {plain(attack['loss'])} on those used, {checked}. "


def _what_if(content: dict[str, Any]) -> str:
    tried = [line for line in content["what_if"] if line["verdict"] is not None and line["name"] != "as published"]
    if not tried:
        return ""
    said = "; ".join(f"{line['name']}: {line['title'].lower()}" for line in tried)
    return f" Audited again with defences: {said}."
