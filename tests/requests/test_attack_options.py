"""Options of an attack load without torch: defaults that its modules have as well are written twice, the same."""

from exhume.attacks.foundation.certificate import HELD_OUT_FRACTION
from exhume.attacks.running.start import SEEDS
from exhume.requests.attack import AttackOptions


def test_defaults_are_those_of_the_attacks() -> None:
    assert AttackOptions().held_out == HELD_OUT_FRACTION
    assert AttackOptions().start_seeds == SEEDS
