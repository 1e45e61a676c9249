"""What the owner should do next, in order of cost: what costs nothing first, what costs the release last.

Every line is true of this audit: it names the state that the attack used, the defences that were tried here, and what
each of them left. Nothing on it calls a model harmless.
"""

from dataclasses import asdict, dataclass
from typing import Any

from exhume.attacks.silent.attack import SilentUnits
from exhume.layer_states import SOURCES
from exhume.reconstruction import Reconstruction
from exhume.report.subject import Subject
from exhume.verdicts import Verdict

FREE, SECONDS, MINUTES = "nothing", "seconds", "minutes"
TRAINING, ACCURACY, RELEASE = "one more training", "one more training, and accuracy", "publishing the weights"
LEAKS = (Verdict.RECOVERED, Verdict.PARTLY_RECOVERED)
BESIDE = ("average", "momentum", "adam", "optimiser")
"""States that lie beside the weights in a checkpoint, and can be left out of it."""


@dataclass(frozen=True)
class NextStep:
    what: str
    cost: str
    why: str


def next_steps(subject: Subject, verdict: Verdict) -> list[dict[str, str]]:
    steps = _leaking(subject) if verdict in LEAKS else _quiet(subject, verdict)
    return [asdict(step) for step in steps]


def _leaking(subject: Subject) -> list[NextStep]:
    steps = [
        NextStep(
            "Hold these weights back.",
            FREE,
            "A file that is out cannot be called back. If the records are personal data, handle the weights as you "
            "handle the records. If the weights are public already, ask your data protection officer at once whether "
            "this is a personal data breach (GDPR, Articles 33 and 34).",
        )
    ]
    found = subject.found
    assert found is not None
    if subject.of_versions:
        return [*steps, FEW_APART, PRIVACY, NO_WEIGHTS]
    steps += [
        step for step in (_withheld(subject, found), *tried_defences(subject.what_if), _smaller(subject, found)) if step
    ]
    return [*steps, PRIVACY, NO_WEIGHTS]


def _quiet(subject: Subject, verdict: Verdict) -> list[NextStep]:
    steps = []
    if verdict is Verdict.INCONCLUSIVE:
        steps.append(
            NextStep(
                "Do not take this page for a no.",
                FREE,
                "Nothing was shown in either direction. Decide as if the data could be read, until an audit says more.",
            )
        )
    steps += [
        NextStep(
            "Publish the trained weights alone.",
            FREE,
            "No weights from before or during training, no seed that draws them, no optimiser state, no moving "
            "average: each is what a stronger attack starts from.",
        ),
        NextStep(
            "Scan what you publish with them: exhume scan FOLDER.",
            SECONDS,
            "Records that lie in a file need no attack.",
        ),
    ]
    if subject.stronger:
        steps.append(
            NextStep(
                "Audit again with what this audit lacked.",
                MINUTES,
                "It is listed under 'What would have made this audit stronger'; an attacker may have it.",
            )
        )
    return [*steps, PRIVACY, NO_WEIGHTS]


FEW_APART = NextStep(
    "Publish no version that differs from another one by a few records.",
    FREE,
    "The attack read the change between the two versions, and cannot be made with one. Delete many records at once. "
    "Whoever kept the older version has it still.",
)
PRIVACY = NextStep(
    "If you need a promise, train with differential privacy (DP-SGD).",
    ACCURACY,
    "A small epsilon holds against every attack, the unknown ones too. Nothing else on this list does.",
)
NO_WEIGHTS = NextStep(
    "Or keep the weights, and let people ask the model.",
    RELEASE,
    "This audit attacks weights. It says nothing of attacks through a model's answers, which need an audit of their "
    "own.",
)


def _withheld(subject: Subject, found: Reconstruction) -> NextStep | None:
    """What the attack used besides the weights, and the owner need not give away."""
    source = found.facts.get("target")
    if found.method == SilentUnits.name and source in BESIDE:
        return NextStep(
            "Publish the weights without the optimiser's state and without a moving average.",
            FREE,
            f"The attack read {SOURCES[source]} of layer {found.facts['layer']!r}. Audit the file again without it.",
        )
    if found.method == SilentUnits.name and source in ("training", "checkpoints"):
        return NextStep(
            "Keep the weights from before training, earlier checkpoints and the seed to yourself.",
            FREE,
            f"The attack compared two states of layer {found.facts['layer']!r}, and cannot be made with one. This "
            "helps only if nobody has the other: a start that is public, or drawn from a small seed, is known to all. "
            "Audit again without --initial.",
        )
    if found.method != SilentUnits.name and subject.observation.knowledge.initial not in ("zero", "distribution"):
        return NextStep(
            "Keep the weights from before training and the seed that drew them to yourself.",
            FREE,
            "The attack was given them. Audit again without --initial to see what is left.",
        )
    return None


def tried_defences(what_if: list[dict[str, Any]]) -> list[NextStep]:
    """Defences of this audit, by what they left."""
    lines = [line for line in what_if if line["name"] != "as published" and line["verdict"] is not None]
    if not lines:
        return [
            NextStep(
                "Try defences on these weights: --what-if int8,prune50,noise.",
                MINUTES,
                "Each is applied, attacked again, and its cost is measured. Expect little of rounding and pruning.",
            )
        ]

    def with_verdict(*verdicts: Verdict) -> list[str]:
        return [line["name"] for line in lines if Verdict(line["verdict"]) in verdicts]

    steps = []
    if leaking := with_verdict(*LEAKS):
        it = "it" if len(leaking) == 1 else "each of them"
        steps.append(NextStep(f"Do not rely on {_listed(leaking)}.", FREE, f"With {it}, data still came back here."))
    if unsettled := with_verdict(Verdict.INCONCLUSIVE):
        steps.append(
            NextStep(
                f"Do not rely on {_listed(unsettled)}: not settled.",
                FREE,
                "The attack on the defended weights was inconclusive, and an attack that fails is no sign of "
                "protection.",
            )
        )
    # what a defence leaves open is never proposed: only what several attacks were refuted on
    return steps + [
        NextStep(
            f"Consider {name}.",
            MINUTES,
            "These attacks did not find the data any more. That is no promise. What it costs is under Mitigations.",
        )
        for name in with_verdict(Verdict.NOT_RECOVERED)
    ]


def _smaller(subject: Subject, found: Reconstruction) -> NextStep | None:
    """What another training would change for the attack that worked."""
    if found.method == SilentUnits.name:
        if found.facts.get("reads", "inputs") != "inputs":
            return None
        return NextStep(
            f"Train again with layer {found.facts['layer']!r} frozen at its start.",
            TRAINING,
            "A layer that did not change has nothing to show to this attack. The layers after it change still: audit "
            "the new model too.",
        )
    observation = subject.observation
    n = subject.samples if subject.truth is None else len(subject.truth.inputs)
    if n is None or observation.p < observation.d * n:
        return None
    return NextStep(
        f"Train again with fewer than d n = {observation.d * n:,} weights in the last layer.",
        TRAINING,
        f"Below that, other data give the same weights. This model has {observation.p:,}. Images can come back "
        "coarse all the same: audit the new model too.",
    )


def _listed(names: list[str]) -> str:
    """
    >>> _listed(["int8"]), _listed(["int8", "noise0.1", "prune50"])
    ('int8', 'int8, noise0.1 and prune50')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
