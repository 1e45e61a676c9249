"""What results look like in a REPL and in a notebook, and the pictures that they can plot."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import exhume
from exhume.errors import UsageError
from exhume.known import Known
from exhume.shown import Shown
from method_cases import SHAPE, D, one_layer, random_features, samples


@pytest.fixture(scope="module")
def found() -> exhume.Reconstruction:
    return exhume.reconstruct(random_features())


@pytest.fixture(scope="module")
def audit() -> exhume.Audit:
    seen = random_features()
    rows = seen.ridge.rows.block(0, seen.ridge.p)
    return exhume.audit_features(rows, seen.weights, "relu", truth=samples().reshape(-1, *SHAPE), budget_seconds=20)


def results(found: exhume.Reconstruction, audit: exhume.Audit) -> dict[str, Shown]:
    strangers = torch.randn(30, D, generator=torch.Generator().manual_seed(9))
    return {
        "observation": replace(random_features(), known=Known(samples())),
        "layer": one_layer(),
        "found": found,
        "evaluation": exhume.evaluate(found, samples()),
        "ranking": exhume.rank(random_features(), samples(), strangers),
        "audit": audit,
    }


def test_results_say_in_one_line_what_came_out(found: exhume.Reconstruction, audit: exhume.Audit) -> None:
    said = {name: repr(result) for name, result in results(found, audit).items()}
    assert all("\n" not in line and str(line) == line for line in said.values())
    start = "Reconstruction(outcome=recovered, candidates=3 with 16 numbers each, trusted=3, loss="
    assert said["found"].startswith(start)
    assert "held_out_loss=" in said["found"]
    assert "method=split-newton, seconds=" in said["found"]
    assert said["observation"] == (
        "Observation(weights=1 x 400, features=relu(Vx), V of 400 x 16 numbers, initial=zero, samples=3, norm=4, "
        "image_shape=1 x 4 x 4, known_samples=3)"
    )
    assert "layers=layer" in said["layer"]
    assert said["evaluation"].startswith("Evaluation(samples=3, candidates=3, recovered=3 of 3, error=")
    assert said["ranking"].startswith("Ranking(records=3, non_members=30, called_at_q_0.1=")
    assert said["audit"].startswith("Audit(verdict=recovered, model=weights over known features, recovered=3 of 3 rec")
    assert "method=split-newton" in said["audit"]


def numbers_of(text: str) -> set[str]:
    return {word.strip("[](),;<>/td=") for word in text.split()}


def test_neither_form_holds_recovered_data(found: exhume.Reconstruction, audit: exhume.Audit) -> None:
    """No recovered number, in the digits that torch or Python would print, and no picture."""
    digits = {
        form.format(value) for value in found.candidates.flatten().tolist() for form in ("{:.4f}", "{:.2f}", "{}")
    }
    for result in results(found, audit).values():
        for text in (repr(result), result._repr_html_()):
            assert "tensor" not in text
            assert "<img" not in text
            assert numbers_of(text).isdisjoint(digits)
            assert len(text) < 3000


def test_a_notebook_gets_a_table_in_which_everything_is_escaped(audit: exhume.Audit) -> None:
    name = "<script>alert(1)</script>"
    hostile = replace(audit, subject=replace(audit.subject, name=name))
    table = hostile._repr_html_()
    assert "<script" not in table
    assert "&lt;script&gt;" in table
    assert table.count("<tr>") >= 6
    assert "held out loss" in table
    assert audit.sentence in table
    layered = one_layer()
    renamed = replace(layered, layers=(replace(layered.layers[0], name="<i>"),))
    assert "<i>" not in renamed._repr_html_()


def test_states_of_a_layer_are_described_and_not_printed() -> None:
    states = one_layer().layers[0]
    assert repr(states) == "LayerStates(layer 'layer' (16 -> 300): the change in training since the known start)"


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"))


def test_candidates_are_plotted_where_they_are_pictures(found: exhume.Reconstruction) -> None:
    figure = found.plot()
    shown = pixels(figure._repr_png_())
    assert shown.shape[1] > 3 * 112
    assert [text.get_text() for text in figure.texts] == ["candidates"]
    assert len(np.unique(shown)) > 10
    one_column = pixels(found.plot(columns=1)._repr_png_())
    assert one_column.shape[0] > shown.shape[0]


def test_an_evaluation_plots_true_pictures_above_recovered_ones(found: exhume.Reconstruction) -> None:
    two = -1.2 * found.candidates[:2]  # sign and norm are brought back
    flipped = replace(found, candidates=two, coefficients=found.coefficients[:2])
    evaluation = exhume.evaluate(flipped, samples())
    figure = evaluation.plot()
    assert [text.get_text() for text in figure.texts] == ["true", "recovered"]
    shown = pixels(figure._repr_png_()).astype(int)
    above, below = shown[16 : 16 + 112], shown[16 + 112 + 6 : 16 + 112 + 6 + 112]
    pictures = [slice(72 + place * 118, 72 + place * 118 + 112) for place in range(3)]
    assert max(int(abs(above[:, part] - below[:, part]).max()) for part in pictures[:2]) <= 1
    assert set(np.unique(below[:, pictures[2]])) == {128}, "no candidate was left for it"


def test_what_is_no_picture_is_refused_in_one_line(found: exhume.Reconstruction) -> None:
    unshaped = replace(found, image_shape=None)
    with pytest.raises(UsageError, match=r"expected pictures to plot, found rows of 16 numbers; give image_shape="):
        unshaped.plot()
    assert unshaped.plot((1, 2, 8)).texts
    with pytest.raises(UsageError, match=r"expected an image shape of 16 numbers, found \(1, 3, 3\)"):
        found.plot((1, 3, 3))
    evaluation = exhume.evaluate(unshaped, samples())
    with pytest.raises(UsageError, match="expected pictures to plot"):
        evaluation.plot()
    with pytest.raises(UsageError, match=r"found numbers only; make it with exhume\.evaluate"):
        replace(evaluation, pairs=None).plot()
    with pytest.raises(UsageError, match="at least one image"):
        replace(found, candidates=found.candidates[:0], coefficients=found.coefficients[:0]).plot()


def test_an_evaluation_holds_the_rows_that_it_was_given_and_no_copies(found: exhume.Reconstruction) -> None:
    rows: Tensor = samples()
    pairs = exhume.evaluate(found, rows).pairs
    assert pairs is not None
    assert pairs.samples is rows
    assert pairs.candidates is found.candidates
    assert repr(pairs) == "Pairs(image_shape=(1, 4, 4))"
