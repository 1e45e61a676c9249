import torch

from exhume.metrics.matching import nearest_cosines, recognised


def test_a_sample_is_recognised_up_to_sign_and_size() -> None:
    samples = torch.eye(3)
    candidates = torch.tensor([[-5.0, 0.5, 0.0], [0.0, 1.0, 1.0]])
    assert recognised(samples, candidates) == 1
    torch.testing.assert_close(nearest_cosines(samples, candidates)[1], torch.tensor(0.5**0.5, dtype=torch.float64))


def test_without_candidates_nothing_is_recognised() -> None:
    assert recognised(torch.eye(3), torch.zeros(0, 3)) == 0
