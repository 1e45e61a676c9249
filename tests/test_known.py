from pathlib import Path

import pytest
import torch

from exhume.errors import ExhumeError, UsageError
from exhume.files import write_tensors
from exhume.known import KIND, Known, load_known, save_known


def test_what_was_written_is_read(tmp_path: Path) -> None:
    known = Known(torch.eye(3), torch.tensor([1.0, -1.0, 1.0]), "logistic", 0.1, True)
    save_known(known, tmp_path / "known.safetensors")
    again = load_known(tmp_path / "known.safetensors", 3)
    assert torch.equal(again.inputs, known.inputs)
    assert again.labels is not None
    assert torch.equal(again.labels, torch.tensor([1.0, -1.0, 1.0]))
    assert (again.loss, again.penalty, again.intercept, len(again)) == ("logistic", 0.1, True, 3)
    save_known(Known(torch.eye(3)), tmp_path / "samples.safetensors")
    assert load_known(tmp_path / "samples.safetensors", 3).labels is None


@pytest.mark.parametrize("loss", ["square", "logistic"])
def test_slopes_are_the_derivatives_of_the_loss(loss: str) -> None:
    labels = torch.tensor([1.0, -1.0], dtype=torch.float64)
    known = Known(torch.eye(2), labels, loss, 1.0)  # type: ignore[arg-type]
    outputs = torch.tensor([0.3, 2.0], dtype=torch.float64, requires_grad=True)
    each = (outputs - labels).square() / 2 if loss == "square" else torch.log1p(torch.exp(-labels * outputs))
    torch.testing.assert_close(known.slopes(outputs.detach()), torch.autograd.grad(each.sum(), outputs)[0])


def test_half_of_the_knowledge_is_refused() -> None:
    with pytest.raises(UsageError, match="together"):
        Known(torch.eye(2), penalty=0.1)
    with pytest.raises(UsageError, match="positive penalty"):
        Known(torch.eye(2), torch.ones(2), "square", 0.0)
    with pytest.raises(UsageError, match="2 labels"):
        Known(torch.eye(2), torch.ones(3), "square", 1.0)


def test_files_that_make_no_sense_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "known.safetensors"
    save_known(Known(torch.eye(3)), path)
    with pytest.raises(ExhumeError, match="dimension 4"):
        load_known(path, 4)
    write_tensors(path, KIND, {"inputs": torch.eye(3)}, {"loss": "hinge", "penalty": 1.0, "intercept": False})
    with pytest.raises(ExhumeError, match="hinge"):
        load_known(path, 3)
    write_tensors(path, KIND, {"inputs": torch.eye(3)}, {"loss": "square", "penalty": 1.0, "intercept": False})
    with pytest.raises(ExhumeError, match="damaged"):
        load_known(path, 3)
    write_tensors(path, KIND, {"inputs": torch.full((1, 3), torch.nan)}, {})
    with pytest.raises(ExhumeError, match="finite samples"):
        load_known(path, 3)
