"""The catalogue of figures: complete, checked before it runs, drawn from its results."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from exhume.errors import ExhumeError, UsageError
from exhume.report.figures import draw_pairs
from exhume_papers.catalogue.copies import tell_apart
from exhume_papers.catalogue.document import BEGIN, END, figure_sections, write_document
from exhume_papers.catalogue.figure import SCALES, Part, PartResults, Scale
from exhume_papers.catalogue.pictures import recovered_pixels, true_pixels, wrong_signs
from exhume_papers.catalogue.registry import FIGURES, chosen
from exhume_papers.catalogue.reproduce import plan_figure, run_figures, write_figure
from exhume_papers.catalogue.thresholds import Panel, ThresholdFigure, at_thresholds, sweeps_of, threshold_panel
from exhume_papers.sweeps.engines import HereEngine
from exhume_papers.sweeps.sweep_folder import SweepFolder


def test_every_figure_of_the_paper_is_there() -> None:
    first = [name for name in FIGURES if name.startswith("fig")]
    numbers = {int("".join(filter(str.isdigit, name.partition("-")[0]))) for name in first}
    assert numbers == set(range(1, 18))
    assert first == sorted(first, key=lambda name: (int(name.partition("-")[0][3:]), name))
    assert list(FIGURES)[len(first) :] == ["subspace-cifar", "subspace-width"], "those of the second paper"


@pytest.mark.parametrize("scale", SCALES)
def test_every_figure_has_words_and_runs_at_every_scale(scale: Scale) -> None:
    for figure in FIGURES.values():
        assert figure.title
        assert figure.published
        assert figure.differs.get(scale) or scale == "paper", figure.name
        parts = figure.parts(scale)
        assert parts
        assert all(part.sweeps and part.title for part in parts)


@pytest.mark.parametrize("name", ["fig3", "fig8-logistic", "fig9-features", "fig15", "fig16"])
@pytest.mark.parametrize("scale", ["quick", "here"])
def test_figures_on_the_sphere_can_be_planned_without_any_data(name: str, scale: Scale) -> None:
    planned = plan_figure(FIGURES[name], scale, None)
    assert planned.plan.runs
    sizes = {run.victim.data.samples * (run.victim.data.dim or 0) for run in planned.plan.runs}
    largest = max(run.victim.model.model_dump()["params"] for run in planned.plan.runs)
    assert largest == 10 * max(sizes)


def test_a_number_stands_for_all_parts_of_a_figure() -> None:
    resnet = ["fig6-resnet", "fig6-resnet-images"]
    assert [figure.name for figure in chosen(["fig6"])] == [*resnet, "fig6-two-layer"]
    assert [figure.name for figure in chosen(["fig6-resnet", "fig1"])] == ["fig1-curve", "fig1-images", *resnet]
    assert [figure.name for figure in chosen(["fig13-images"])] == ["fig13-images"]
    with pytest.raises(UsageError, match=r"expected a figure out of fig1-curve, .*, or theory, found 'fig18'"):
        chosen(["fig18"])


def small_figure() -> ThresholdFigure:
    victim = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 2, "params": [2, 12, 36]}
    attacks = [{"method": "heavy-ball", "iterations": 3}]
    panel = Panel("sphere", sweeps_of([victim], attacks, 2), ("error", "span_residual", "training_loss"))
    return ThresholdFigure("fig0", "a title", "nothing", lambda scale: [panel], {"quick": "tiny"})


def test_a_figure_is_run_drawn_and_written(tmp_path: Path) -> None:
    planned = plan_figure(small_figure(), "quick", None)
    (swept,) = run_figures([planned, planned], tmp_path, lambda alone: HereEngine(tmp_path / "sweep"))
    assert (swept.done, swept.failed) == (6, 0)
    summary = write_figure(planned, "quick", tmp_path, "exhume reproduce --quick fig0")
    assert json.loads((tmp_path / "fig0" / "figure.json").read_text()) == summary
    assert (summary["runs"], summary["done"], summary["failed"]) == (6, 6, 0)
    assert summary["pictures"] == ["fig0.png"]
    assert (tmp_path / "fig0" / "fig0.png").stat().st_size > 5_000
    assert len((tmp_path / "fig0" / "numbers.csv").read_text().splitlines()) == 7
    assert [sentence.partition(":")[0] for sentence in summary["measured"]] == ["sphere, published attack"] * 2
    assert " at p = n (0 of 2 recovered, " in summary["measured"][0]
    assert " at p = dn (" in summary["measured"][0]
    assert " at p = 3dn (" in summary["measured"][0]
    assert summary["measured"][0].endswith(" in the released metric)")


def test_what_fills_the_machine_runs_alone_and_a_cluster_has_no_such_bound(tmp_path: Path) -> None:
    planned = plan_figure(small_figure(), "quick", None)
    needs = sorted(run.memory for run in planned.plan.runs)
    asked: list[bool] = []

    def engine(alone: bool) -> HereEngine:
        asked.append(alone)
        return HereEngine(tmp_path / "sweep")

    swept = run_figures([planned], tmp_path, engine, memory=needs[0] + needs[-1])
    assert asked == [False, True]
    assert sum(one.done for one in swept) == 6
    asked.clear()
    run_figures([planned], tmp_path, engine)
    assert asked == [False]


def test_a_figure_that_was_not_run_says_so(tmp_path: Path) -> None:
    summary = write_figure(plan_figure(small_figure(), "quick", None), "quick", tmp_path, "exhume")
    assert (summary["done"], summary["measured"], summary["pictures"]) == (0, [], [])


def rows(**more: Any) -> list[dict[str, Any]]:
    """Two seeds at three sizes, n = 10, d = 10."""
    return [
        {"n": 10, "d": 10, "p": p, "method": "split-newton", "error": error, "training_loss": 0.5, **more}
        for p, errors in {10: (1.0, 0.8), 100: (0.6, 0.4), 1000: (0.0, 0.0)}.items()
        for error in errors
    ]


def test_values_are_told_where_the_thresholds_are() -> None:
    assert at_thresholds(rows(), "error") == "0.9 ± 0.14 at p = n, 0.5 ± 0.14 at p = dn, 0 ± 0 at p = 10dn"
    assert at_thresholds(rows(), "loss") == "nowhere"
    before_pruning = [{**row, "train.params": 2 * int(row["p"])} for row in rows()]
    assert at_thresholds(before_pruning, "error", "train.params").endswith("0 ± 0 at p = 20dn")


def test_a_panel_has_a_curve_for_each_attack_and_the_training_loss_once() -> None:
    both = rows() + [row | {"method": "heavy-ball"} for row in rows()]
    result = PartResults(Panel("t", (), ("error", "training_loss")), both, Path())
    drawn = threshold_panel(result)
    assert [curve.label for curve in drawn.curves] == [
        "reconstruction error, exhume",
        "training loss",
        "reconstruction error, published attack",
    ]
    assert drawn.curves[0].values == {10: [1.0, 0.8], 100: [0.6, 0.4], 1000: [0.0, 0.0]}
    assert len({curve.style for curve in drawn.curves if curve.quantity == "error"}) == 2


def test_a_panel_has_a_shade_for_each_value_that_is_varied() -> None:
    three = rows() + rows(**{"train.ridge": 10.0}) + rows(**{"train.ridge": 0.5})
    panel = Panel("t", (), ("error",), varied="train.ridge", varied_name="lambda")
    drawn = threshold_panel(PartResults(panel, three, Path()))
    assert [curve.label for curve in drawn.curves] == [
        "reconstruction error, lambda none",
        "reconstruction error, lambda 0.5",
        "reconstruction error, lambda 10",
    ]
    assert [curve.shade for curve in drawn.curves] == [0.0, 0.375, 0.75]


def test_pictures_keep_the_signs_that_the_attack_left(tmp_path: Path) -> None:
    victim = {"kind": "rf", "data": "faces", "samples": 3, "side": 5, "ratio": 2}
    sweeps = sweeps_of([victim], [{"method": "heavy-ball", "iterations": 2}], 1)
    figure = ThresholdFigure("fig0", "t", "p", lambda scale: [Panel("faces", sweeps)], {})
    planned = plan_figure(figure, "quick", None)
    run_figures([planned], tmp_path, lambda alone: HereEngine(tmp_path / "sweep"))
    run = SweepFolder(tmp_path / "sweep").run(planned.plan.runs[0].key)
    result = PartResults(Part("faces", sweeps), [{"run": run.name}], run.parent)
    folder = result.folder({"run": run.name})
    truth, found = folder.truth(), folder.reconstruction()
    from dataclasses import replace

    flipped = replace(found, candidates=torch.cat([-truth.inputs[:1], 7 * truth.inputs[1:]])[[2, 0, 1]])
    shown, true = recovered_pixels(truth, flipped), true_pixels(truth)
    torch.testing.assert_close(shown[1:], true[1:], rtol=1e-4, atol=1e-4)
    assert (shown[0] - true[0]).abs().max() > 0.1
    draw_pairs(true, shown, tmp_path / "pairs.png")
    from exhume.reconstruction import save_reconstruction

    save_reconstruction(flipped, run / "reconstruction.safetensors")
    assert wrong_signs(result, {"run": run.name}) == 1


def test_candidates_are_samples_copies_or_blends() -> None:
    samples = torch.eye(4)[:3] * 2
    blend = samples[0] + samples[1]
    candidates = torch.stack([samples[0], -3 * samples[0], samples[2], blend, torch.tensor([0.0, 0.0, 0.0, 1.0])])
    coefficients = torch.tensor([[1.0], [-0.5], [0.2], [0.3], [1e-5]])
    kinds = tell_apart(samples, candidates, coefficients)
    assert (kinds.samples, kinds.blends) == (2, 1)
    assert kinds.spare.tolist() == [False, True, False, False, False]
    assert kinds.idle.tolist() == [False, False, False, False, True]
    near = samples[:1] + 0.09 * math.sqrt(2) * torch.eye(4)[3:]
    kinds = tell_apart(samples, near, coefficients[:1])
    assert (kinds.samples, kinds.blends, int(kinds.spare.sum())) == (1, 0, 0)


def section(text: str, name: str = "fig3") -> str:
    return text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_every_figure_has_a_section_and_says_what_was_not_run(tmp_path: Path) -> None:
    empty = figure_sections(tmp_path)
    assert empty.count("\n### ") == len(FIGURES) + 1
    assert all(f"- Here: not run (`exhume reproduce {name}`)" in section(empty, name) for name in [*FIGURES, "theory"])
    found = {
        "published": "a, as (b; c) says; d",
        "measured": ["one", "two"],
        "scale": "quick",
        "differs": "tiny",
        "command": "exhume reproduce --quick fig3",
        "runs": 5,
        "done": 3,
        "failed": 1,
        "reasons": ["no luck"],
        "run_seconds": 90.0,
    }
    for scale, done in (("quick", 3), ("here", 0)):
        path = tmp_path / scale / "fig3" / "figure.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(found | {"scale": scale, "done": done}))
    told = section(figure_sections(tmp_path))
    assert told.startswith(
        f"{FIGURES['fig3'].title.capitalize()}.\n\n- Published:\n\n    - a, as (b; c) says\n    - d\n"
    )
    points = ["one", "two", "1 of 5 runs not run", "1 runs failed: no luck"]
    assert "- Here:\n\n" + "".join(f"    - {point}\n" for point in points) in told
    assert "- Scale: quick\n- Differences: tiny\n- Command: `exhume reproduce --quick fig3`, 1.5 min\n" in told

    def scale_shown(**results: tuple[int, float | None]) -> str:
        for scale, (done, wall) in results.items():
            path = tmp_path / scale / "fig3" / "figure.json"
            path.write_text(json.dumps(found | {"scale": scale, "done": done, "wall_seconds": wall}))
        return section(figure_sections(tmp_path))

    assert "- Scale: quick\n" in scale_shown(quick=(4, None), here=(2, None)), "all of it at the smaller scale"
    assert "- Scale: here\n" in scale_shown(quick=(3, None), here=(2, None))
    assert "1.5 min of computing in 45 s\n" in scale_shown(quick=(4, None), here=(4, 45.0))


def test_a_picture_beside_the_page_is_shown_in_the_section_of_its_figure(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "fig3.png").touch()
    page = tmp_path / "reproduction.md"
    write_document(tmp_path, page)
    assert page.read_text().count("](images/") == 1
    assert f"![fig3: {FIGURES['fig3'].title}](images/fig3.png)" in section(page.read_text())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"schema": 2, "done": 1}, r"expected schema 1 in .*figure\.json, found '2'"),
        (
            {"done": 1},
            r"expected a complete .*figure\.json, found it damaged \('published'\); run 'exhume reproduce fig3'",
        ),
        (
            {"done": 1, "scale": "quick", "differs": "", "published": "", "measured": 3},
            r"expected a complete .*figure\.json, found it damaged",
        ),
    ],
)
def test_results_that_cannot_be_read_are_one_line(tmp_path: Path, content: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "quick" / "fig3" / "figure.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    with pytest.raises(ExhumeError, match=complaint):
        figure_sections(tmp_path)


def test_the_page_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "reproduction.md"
    page.write_text("# Mine\nabove\n")
    write_document(tmp_path, page)
    first = page.read_text()
    assert first.startswith("# Mine\nabove\n\n")
    page.write_text(first + "below\n")
    write_document(tmp_path, page)
    assert page.read_text() == first + "below\n"
    assert (first.count(BEGIN), first.count(END)) == (1, 1)


def test_a_section_of_the_page_stays_until_there_is_a_better_result(tmp_path: Path) -> None:
    """Results of several machines meet on one page."""
    page = tmp_path / "reproduction.md"

    def told(machine: str, scale: str, done: int, failed: int = 0) -> str:
        path = tmp_path / machine / scale / "fig3" / "figure.json"
        path.parent.mkdir(parents=True)
        result = {
            "published": "",
            "measured": [machine],
            "scale": scale,
            "differs": "",
            "command": "",
            "reasons": ["luck"],
        }
        path.write_text(json.dumps(result | {"runs": 5, "done": done, "failed": failed, "run_seconds": 1.0}))
        write_document(tmp_path / machine, page)
        return section(page.read_text())

    def shown(machine: str, scale: str) -> str:
        return f"    - {machine}\n\n- Scale: {scale}\n"

    assert "2 of 5 runs not run\n\n- Scale: here\n" in told("first", "here", 3)
    assert shown("second", "quick") in told("second", "quick", 5), "all of a smaller scale"
    assert shown("third", "here") in told("third", "here", 5)
    assert shown("third", "here") in told("fourth", "quick", 5)
    assert shown("third", "here") in told("fifth", "paper", 4)
    assert shown("sixth", "here") in told("sixth", "here", 5), "the newer one"
    assert shown("sixth", "here") in told("seventh", "here", 1, failed=4), "none of whose runs failed"
    write_document(tmp_path / "none", page)
    assert shown("sixth", "here") in page.read_text()
