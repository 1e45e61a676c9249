"""What the owner could have given that would have made an audit stronger: an attacker may have it.

Each line names the option, and says what it is for. Nothing is listed that was given.
"""

from collections.abc import Collection

from exhume.auditing.attempts import OUT_OF_TIME, Attempt
from exhume.auditing.target import AuditTarget
from exhume.layer_states import AVERAGES


def stronger(
    target: AuditTarget,
    attempts: tuple[Attempt, ...],
    *,
    samples: bool,
    recipe: Collection[str],
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
    elif target.drift is None and not target.observation.layers and target.in_front is not None:
        lines.append(
            "The state of all layers before training (--initial FILE): that of the head alone was known, and the "
            "layers before it give away more."
        )
    if not recipe:
        lines.append("The recipe (--recipe): how the model was trained says whether these attacks can judge it at all.")
    if "adam" in recipe:
        lines += _of_adam(target)
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


def _of_adam(target: AuditTarget) -> list[str]:
    """What gives away data all the same: Adam's steps are no sums over samples, but what they are made of is."""
    observation, helps = target.observation, []
    if not any(layer.source in AVERAGES for layer in observation.layers):
        helps.append("the optimiser's state in the checkpoint, whose average of gradients is a sum over samples")
    if observation.ends is not None and observation.recipe is None:
        helps.append("the recipe in numbers (--recipe-file), by which a dense ReLU network can be trained again")
    if observation.ends is not None:
        helps.append("a checkpoint from shortly before the end (--initial), which leaves few steps to train again")
    return [f"As Adam trained it, any of these: {'; '.join(helps)}."] if helps else []


def _stopped(attempt: Attempt) -> bool:
    return attempt.attacked is not None and attempt.attacked.stopped and not attempt.attacked.interrupted
