import torch

from exhume.attacks.single_layer.growth import GROWTH, Growth

NONE = torch.zeros(0, 2)


def grown(scores: list[float], drifts: bool) -> Growth:
    growth = Growth(drifts, added=1)
    for score in scores:
        growth.judge(score, NONE)
    return growth


def test_a_small_gain_pays_only_where_features_stay() -> None:
    slowly = [0.95**step for step in range(6)]
    assert grown(slowly, drifts=False).since == 0
    assert grown(slowly, drifts=True).since == 5


def test_small_gains_that_add_up_pay_where_features_drift() -> None:
    assert grown([1.0, 0.9, 0.8, 0.69], drifts=True).since == 0


def test_the_best_score_is_kept_however_small_the_gain() -> None:
    assert grown([1.0, 0.999, 1.1], drifts=True).best == 0.999


def test_what_a_checkpoint_keeps_is_enough_to_go_on() -> None:
    for growth in (Growth(True), grown([1.0, 0.9], drifts=True)):
        restored = Growth(True)
        GROWTH.restore(restored, GROWTH.save(growth), torch.device("cpu"))
        assert restored == growth
