import torch

from exhume.metrics.errors import relative_errors
from exhume.metrics.pieces import piece_errors, record_errors


def test_single_pieces_are_ordinary_relative_errors() -> None:
    stream = torch.Generator().manual_seed(0)
    samples, candidates = torch.randn(6, 5, generator=stream), torch.randn(4, 5, generator=stream)
    found = record_errors(piece_errors(samples[:, None], candidates))
    torch.testing.assert_close(found, relative_errors(samples.double(), candidates.double()))


def test_equal_pieces_share_a_candidate_and_others_do_not() -> None:
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.05])
    equal = torch.stack([one, one])[None]
    apart = torch.stack([one, other])[None]
    assert piece_errors(equal, one[None]).tolist() == [[0.0, 0.0]]
    assert sorted(piece_errors(apart, one[None])[0].tolist()) == [0.0, 1.0]


def test_a_black_piece_is_measured_by_the_others() -> None:
    pieces = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [4.0, 3.0]]])
    errors = piece_errors(pieces, pieces[0] + 1e-6)
    assert float(errors.max()) < 1e-5


def test_a_record_counts_by_nine_tenths_of_its_pieces() -> None:
    errors = torch.zeros(2, 10)
    errors[0, 0], errors[1, :2] = 1.0, 1.0
    assert record_errors(errors).tolist() == [0.0, 1.0]


def test_no_candidates_leave_nothing() -> None:
    assert piece_errors(torch.ones(2, 3, 4), torch.zeros(0, 4)).tolist() == [[1.0] * 3] * 2
