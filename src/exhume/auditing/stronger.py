"""What the owner could have given that would have made an audit stronger: an attacker may have it.

Each line names the option, and says what it is for. Nothing is listed that was given.
"""

from exhume.auditing.attempts import OUT_OF_TIME, Attempt
from exhume.auditing.target import AuditTarget


def stronger(
    target: AuditTarget,
    attempts: tuple[Attempt, ...],
    *,
    samples: bool,
    recipe: bool,
    records: bool,
    control: bool,
) -> list[str]:
    """What was not there: the state before training first, which matters most."""
    lines = []
    if target.observation.knowledge.initial == "distribution":
        lines.append(
            "The state before training (--initial, or --initial-seed): without it the start is noise in the weights. "
            "With it, the change of each layer is what the training data made."
        )
    elif target.drift is None and not target.observation.layers and target.observation.features.is_network:
        lines.append(
            "The state of all layers before training (--initial FILE): that of the head alone was known, and the "
            "layers before it give away more."
        )
    if not recipe:
        lines.append("The recipe (--recipe): how the model was trained says whether these attacks can judge it at all.")
    if not samples:
        lines.append(
            "The number of training records (--samples): one attack has to be told it, and that nothing was found "
            "cannot be said without it."
        )
    if not records:
        lines.append(
            "The training records (--truth): no attack sees them; they show which candidates are right, and whether "
            "the attacks' assumption holds."
        )
    elif not control:
        lines.append("Records that were not trained on (--control): they show what would come back by chance.")
    if any(attempt.failure == OUT_OF_TIME or _stopped(attempt) for attempt in attempts):
        lines.append("More time (--budget): it ended before the attacks did.")
    return lines


def _stopped(attempt: Attempt) -> bool:
    return attempt.attacked is not None and attempt.attacked.stopped and not attempt.attacked.interrupted
