import base64
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import torch
from PIL import Image

from exhume.attacks.running.snapshots import SNAPSHOTS_FILE, Snapshot, save_snapshots
from exhume.experiments.run import RunFolder
from exhume.experiments.scoring import score_run
from exhume.files import read_json, write_json
from exhume.metrics.matching import match
from exhume.reconstruction import Outcome
from exhume.report.content import thin
from run_content import collect

MakeRun = Callable[..., RunFolder]


def test_a_real_attack_is_reported_with_the_numbers_of_its_run(attacked: RunFolder) -> None:
    content, summary = collect(attacked, reveal=False), attacked.summary()
    assert content["attack"]["loss"] == summary["loss"]
    assert content["attack"]["held_out_loss"] == summary["held_out_loss"]
    assert content["verdict"]["outcome"] == summary["outcome"]
    assert content["gauge"]["zone"] == "labels"
    assert (content["gauge"]["p"], content["gauge"]["d"], content["gauge"]["n"]) == (60, 625, 3)
    assert len(content["trace"]) == 13
    file = attacked.path / "observation.safetensors"
    assert content["artefact"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    written = datetime.fromisoformat(content["written"])
    assert abs((datetime.now(UTC) - written).total_seconds()) < 60


def test_an_attack_that_ended_with_nothing_is_reported_with_or_without_records(make_run: MakeRun) -> None:
    for has_truth in (True, False):
        run = make_run(outcome=Outcome.NOT_CONVERGED, candidates=0, has_truth=has_truth, name=f"{has_truth}")
        shot = Snapshot(3, 9.0, 0.5, torch.ones(2, 625))
        save_snapshots((shot,), run.path / SNAPSHOTS_FILE)
        content = collect(run, reveal=False)
        assert len(content["frames"]) == (2 if has_truth else 0)
        assert content["verdict"]["answer"] == "Nobody knows yet."


def test_the_rows_are_the_matching_the_closest_first(make_run: MakeRun) -> None:
    run = make_run(wrong=1)
    rows, truth = collect(run, reveal=False)["rows"], run.truth()
    norms = truth.inputs.norm(dim=1)
    matching = match(truth.inputs, run.reconstruction().candidates, sign_free=True)
    by_sample = {row["sample"]: row for row in rows}
    assert [by_sample[i]["candidate"] for i in (1, 2)] == matching.candidate[1:].tolist()
    for i in (1, 2):  # the paper's distance is over the root of d
        over_norm = float(matching.distance[i] * truth.inputs.shape[1] ** 0.5 / norms[i])
        assert by_sample[i]["distance"] == pytest.approx(over_norm, rel=1e-3)
    assert (by_sample[0]["candidate"], by_sample[0]["distance"]) == (None, 1.0), "farther than the sample's norm"
    assert [row["distance"] for row in rows] == sorted(row["distance"] for row in rows)
    assert [by_sample[i]["recovered"] for i in range(3)] == [False, True, True]
    assert [by_sample[i]["sign_flipped"] for i in (1, 2)] == [False, True]
    assert by_sample[1]["coefficient"] == pytest.approx(by_sample[1]["true_coefficient"], rel=1e-5)
    assert by_sample[1]["psnr"] > 60


def test_results_agree_with_an_evaluation_of_the_run_before_and_after_it_is_written(make_run: MakeRun) -> None:
    run = make_run(wrong=1)
    scores = score_run(run).summary()
    for evaluated in (False, True):
        if evaluated:
            run.update_summary(scores)
        results = {result["key"]: result["value"] for result in collect(run, reveal=False)["results"]}
        for key in ("error", "recovered_fraction", "mean_psnr", "mean_ssim"):
            assert results[key] == pytest.approx(scores[key]), key
        assert ("span_residual" in results) == evaluated


def test_the_content_is_json_and_comes_back_as_it_was(make_run: MakeRun) -> None:
    content = collect(make_run(), reveal=True)
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_without_reveal_no_stored_picture_has_more_than_six_pixels_a_side(make_run: MakeRun) -> None:
    run = make_run()
    sizes = {}
    for reveal in (False, True):
        pictures = collect(run, reveal)["pictures"]
        stored = [base64.b64decode(picture[side]) for picture in pictures for side in ("true", "found")]
        assert len(stored) == 6
        sizes[reveal] = {Image.open(io.BytesIO(data)).size for data in stored}
    assert sizes == {False: {(6, 6)}, True: {(25, 25)}}


def test_without_truth_the_candidates_come_by_the_size_of_their_coefficient(make_run: MakeRun) -> None:
    content = collect(make_run(has_truth=False), reveal=True)
    sizes = [row["coefficient"] for row in content["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    assert content["results"] == []
    assert [picture["true"] for picture in content["pictures"]] == [None] * 3
    assert content["verdict"]["sentence"].startswith("Recovered: 3 training images can be read")


def test_rows_without_an_image_shape_have_no_pictures(make_run: MakeRun) -> None:
    content = collect(make_run("sphere"), reveal=True)
    assert content["pictures"] == []
    assert {row["psnr"] for row in content["rows"]} == {None}
    assert content["verdict"]["sentence"] == "Recovered: 4 of 4 training samples can be read from the weights."


@pytest.mark.parametrize("candidates", [0, 2])
def test_samples_that_got_no_candidate_are_listed_as_such(make_run: MakeRun, candidates: int) -> None:
    content = collect(make_run(candidates=candidates), reveal=True)
    missing = [row for row in content["rows"] if row["candidate"] is None]
    assert len(missing) == 3 - candidates
    assert not any(row["recovered"] for row in missing)
    shown = [content["rows"][picture["row"]]["candidate"] for picture in content["pictures"]]
    assert len(shown) == candidates, "an image of which nothing came back is not shown"
    assert None not in shown


def test_paths_and_user_names_stay_out(make_run: MakeRun) -> None:
    run = make_run(name="folder")
    config = read_json(run.path / "config.json")
    config["data"] |= {"name": "/home/somebody/photos", "data_dir": "/home/somebody"}
    write_json(run.path / "config.json", config)
    run.update_summary({"data": "/home/somebody/photos: 3 images"})
    content = collect(run, reveal=False)
    text = json.dumps(content)
    assert "somebody" not in text
    assert str(run.path.parent) not in text
    assert content["artefact"]["data"] == "photos: 3 images"
    (run.path / "config.json").unlink()
    assert "somebody" not in json.dumps(collect(run, reveal=False))


@pytest.mark.parametrize(
    ("outcome", "converged"),
    [(Outcome.RECOVERED, True), (Outcome.SPURIOUS, True), (Outcome.NOT_CONVERGED, True), (Outcome.PARTIAL, True)],
)
def test_an_attack_that_fitted_the_weights_it_used_has_converged_whatever_unseen_ones_say(
    make_run: MakeRun, outcome: Outcome, converged: bool
) -> None:
    assert collect(make_run(outcome=outcome), reveal=False)["attack"]["converged"] is converged


@pytest.mark.parametrize("outcome", [Outcome.SPURIOUS, Outcome.NOT_CONVERGED])
def test_an_attack_that_did_not_fit_the_weights_it_used_has_not_converged(make_run: MakeRun, outcome: Outcome) -> None:
    run = make_run(outcome=outcome)
    run.save_attack(replace(run.reconstruction(), loss=0.04), run.trace())
    assert collect(run, reveal=False)["attack"]["converged"] is False


def test_the_number_of_samples_is_not_known_to_an_attack_that_was_not_told(make_run: MakeRun) -> None:
    run = make_run()
    found = run.reconstruction()
    found.settings["samples"] = None
    run.save_attack(found, run.trace())
    known = {item["what"]: item["known"] for item in collect(run, reveal=False)["knowledge"]}
    assert known["The number of training samples"] is False


@pytest.mark.parametrize(("length", "kept"), [(0, 0), (1, 1), (5, 5), (400, 400), (401, 400), (100_000, 400)])
def test_a_trace_is_thinned_evenly_with_both_ends(length: int, kept: int) -> None:
    trace = [{"iteration": float(i), "loss": 1.0, "seconds": 0.0} for i in range(length)]
    thinned = thin(trace)
    assert len(thinned) == kept
    if kept:
        iterations = [line["iteration"] for line in thinned]
        assert (iterations[0], iterations[-1]) == (0, length - 1)
        gaps = np.diff(iterations)
        assert kept == 1 or gaps.max() - gaps.min() <= 1
        assert set(thinned[0]) == {"iteration", "loss"}
