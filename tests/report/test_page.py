import base64
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from jinja2 import ChoiceLoader, DictLoader, UndefinedError
from PIL import Image

from exhume.data.config import DataConfig
from exhume.data.dataset import Dataset, prepare
from exhume.errors import ExhumeError
from exhume.experiments.run import RunFolder
from exhume.files import read_tensors, write_tensors
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume.report import page as page_module
from exhume.report.evidence import with_truth
from exhume.report.page import render, write_report
from exhume.report.pictures import to_base64_png
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig
from run_content import collect

MakeRun = Callable[..., RunFolder]
VOID = {"meta", "img", "br", "input"}
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"


class Checker(HTMLParser):
    """Fails on tags that do not balance; keeps every tag with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(params=["images", "no truth", "rows", "rows, no truth", "nothing found", "real"])
def page(request: pytest.FixtureRequest, make_run: MakeRun) -> str:
    run = {
        "images": lambda: make_run(wrong=1),
        "no truth": lambda: make_run(has_truth=False, outcome=Outcome.PARTIAL, held_out_loss=0.02),
        "rows": lambda: make_run("sphere", outcome=Outcome.SPURIOUS, wrong=4, held_out_loss=0.5),
        "rows, no truth": lambda: make_run("sphere", has_truth=False, held_out_loss=None, outcome=Outcome.SPURIOUS),
        "nothing found": lambda: make_run(has_truth=False, candidates=0, outcome=Outcome.NOT_CONVERGED),
        "real": lambda: request.getfixturevalue("attacked"),
    }[request.param]()
    return render(collect(run, reveal=False))


def test_a_page_is_balanced_and_refers_to_nothing_outside_of_it(page: str) -> None:
    checked = Checker(page)
    assert "://" not in page
    assert checked.all("link") == checked.all("iframe") == []
    for tag, attributes in checked.tags:
        for name in ("src", "href", "action", "poster", "srcset", "xlink:href"):
            assert (attributes.get(name, "data:") or "").startswith(("data:", "#")), (tag, name)
    assert not re.search(r"url\(|@import", page)


def test_a_page_can_be_used_without_sight_or_mouse(page: str) -> None:
    checked = Checker(page)
    assert checked.all("html") == [{"lang": "en"}]
    shown = [image for image in checked.all("img") if not str(image.get("id")).startswith("stage-")]
    assert all(image["alt"] for image in shown), "the two of the slider get theirs from the picture that is chosen"
    assert len(checked.all("caption")) == len(checked.all("table"))
    assert all(head["scope"] in ("col", "row") for head in checked.all("th"))
    assert all(drawing.get("aria-label") or drawing.get("aria-hidden") for drawing in checked.all("svg")[:1])
    assert all(control.get("aria-label") for control in checked.all("input"))
    ids = [attributes["id"] for _, attributes in checked.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for button in checked.all("button"):
        assert button["type"] == "button"
        assert button.get("data-copies", ids[0]) in ids


def test_the_first_heading_is_the_verdict(make_run: MakeRun) -> None:
    page = render(collect(make_run(), reveal=False))
    (heading,) = re.findall(r"<h1[^>]*>(.*?)</h1>", page)
    assert re.sub(r"<[^>]*>", "", heading) == "Recovered: 3 of 3 training images can be read from the weights."


def test_report_json_alone_rebuilds_the_page(make_run: MakeRun) -> None:
    run = make_run()
    written = write_report(run, reveal=True)
    assert written == run.report
    assert render(json.loads((run.path / "report.json").read_text(encoding="utf-8"))) == written.read_text("utf-8")


def test_the_download_is_the_content_without_pictures(make_run: MakeRun) -> None:
    content = collect(make_run(), reveal=True)
    link = next(link for link in Checker(render(content)).all("a") if "download" in link)
    kind, data = (link["href"] or "").split(",")
    assert kind == "data:application/json;base64"
    del content["pictures"], content["strips"]
    assert json.loads(base64.b64decode(data)) == content


def test_hostile_names_stay_text(make_run: MakeRun) -> None:
    run = make_run(name="<b>&run'\"")
    _rename_classes(run, HOSTILE)
    content = collect(run, reveal=False)
    for place in ("sentence", "advice"):
        content["verdict"][place] = HOSTILE
    content["commands"] = [HOSTILE]
    checked = Checker(render(content))
    assert len(checked.all("script")) == 1
    assert checked.all("b") == []
    assert not any(name.startswith("on") for _, attributes in checked.tags for name in attributes)
    pictures = [image for image in checked.all("img") if not str(image.get("id")).startswith("stage-")]
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in pictures)
    assert checked.text.count(HOSTILE) >= 6
    assert run.path.name in checked.text


def test_the_pages_own_script_is_the_only_one_it_allows(make_run: MakeRun) -> None:
    import hashlib

    page = render(collect(make_run(), reveal=False))
    script = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    allowed = re.findall(r"'sha256-(.*?)'", page)
    assert allowed == [base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()]
    assert len(script) == 1


def test_without_reveal_no_file_holds_a_sharp_picture_even_if_one_did_before(make_run: MakeRun) -> None:
    run = make_run()
    evidence = with_truth(run.truth(), run.reconstruction(), run.observation(), run.summary())
    assert evidence.pictures is not None
    assert evidence.pictures.truth is not None
    sharp = [to_base64_png(picture) for picture in (*evidence.pictures.found, *evidence.pictures.truth)]
    for reveal in (True, False):
        write_report(run, reveal)
        for name in ("report.html", "report.json"):
            text = (run.path / name).read_text(encoding="utf-8")
            assert [data in text for data in sharp] == [reveal] * 6
        figure = np.asarray(Image.open(run.path / "pairs.png").convert("L"))
        grays = len(np.unique(figure[16:116, 80:160]))
        assert (grays > 100) == reveal
        assert (grays <= 36) == (not reveal)
    assert '<button id="reveal"' not in run.report.read_text(encoding="utf-8")


def test_revealed_pictures_wait_for_a_button(make_run: MakeRun) -> None:
    checked = Checker(render(collect(make_run(), reveal=True)))
    button = next(button for button in checked.all("button") if button.get("id") == "reveal")
    assert button["aria-pressed"] == "false"
    assert all("sharp" in (span["class"] or "") for span in checked.all("span") if "frame" in (span.get("class") or ""))
    assert all("revealed" not in (body.get("class") or "") for body in checked.all("body"))


@pytest.mark.parametrize(
    ("options", "figures"),
    [
        ({}, {"pairs.png", "trace.png"}),
        ({"has_truth": False}, {"candidates.png", "trace.png"}),
        ({"data": "sphere"}, {"trace.png"}),
    ],
)
def test_the_figures_are_written_beside_the_page(
    make_run: MakeRun, options: dict[str, object], figures: set[str]
) -> None:
    run = make_run(**options)
    write_report(run, reveal=False)
    assert {path.name for path in run.path.glob("*.png")} == figures


def test_fifty_large_noisy_images_make_a_page_below_five_megabytes(tmp_path: Path) -> None:
    pixels = torch.rand(50, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    prepared = prepare(pixels, "subset", "sqrt-d")
    index = torch.zeros(50, dtype=torch.int64)
    data = Dataset(prepared.rows, torch.ones(50), ("noise",), index, (3, 64, 64), prepared.preparation, "noise: 50")
    config = DataConfig(name="noise", samples=50)
    train_run(tmp_path / "run", config, RandomFeaturesConfig(params=8), data)
    run = RunFolder(tmp_path / "run")
    certificate = Certificate(Outcome.RECOVERED, 1e-9, 1, ())
    found = Reconstruction(data.inputs, torch.ones(50, 1), "heavy-ball", certificate, 0.0, 999, 1.0, 1.0, 1.0, 0)
    run.save_attack(found, [{"iteration": float(i), "loss": 1.0, "passes": float(i)} for i in range(1000)])
    content = collect(run, reveal=True)
    assert len(content["pictures"]) + content["pictures_left_off"] == 50
    assert len(content["pictures"]) >= 20
    assert len(render(content).encode()) < 5_000_000


def test_a_content_with_a_hole_is_not_rendered_around_it(make_run: MakeRun) -> None:
    content = collect(make_run(), reveal=False)
    del content["verdict"]["advice"]
    with pytest.raises(UndefinedError, match="advice"):
        render(content)


def test_a_run_without_attack_is_told_to_attack_first(trained: dict[str, Path], tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(trained["faces"], tmp_path / "run"))
    with pytest.raises(ExhumeError, match="run 'exhume attack"):
        write_report(run, reveal=False)
    assert not run.report.exists()


def _rename_classes(run: RunFolder, name: str) -> None:
    path = run.path / "truth.safetensors"
    file = read_tensors(path, "truth")
    tensors = {**file.tensors, "class_index": torch.zeros_like(file.tensors["class_index"])}
    meta = {key: value for key, value in file.meta.items() if key not in ("kind", "schema")}
    write_tensors(path, "truth", tensors, meta | {"class_names": [name]})


def test_a_section_is_added_as_the_architecture_says(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    (block,) = re.findall(r"^```jinja\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    content, plain = collect(make_run(), reveal=False), page_module._environment()
    source = (Path(page_module.__file__).parent / "page.html.jinja").read_text()
    before = '<section id="records">'
    assert source.count(before) == 1
    templates = DictLoader({"page.html.jinja": source.replace(before, f"{block}{before}")})
    assert plain.loader is not None
    changed = plain.overlay(loader=ChoiceLoader([templates, plain.loader]))
    old = render(content)
    monkeypatch.setattr(page_module, "_environment", lambda: changed)
    assert Checker(render(content)).text == Checker(old).text, "a report from before the section"
    shown = Checker(render(content | {"weight": 12.5}))
    assert "How heavy the weights are" in shown.text
    assert "Their norm is 12.5." in shown.text
