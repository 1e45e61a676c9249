"""The whole way on the page of `exhume serve`: drop files, see their sizes, audit, stop, go on, read, compare."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file

from exhume.data.config import DataConfig
from exhume.data.load import load
from page_checks import CONTRAST, HEADINGS, UNNAMED

pytest.importorskip("starlette", reason="no web framework: pip install 'exhume[web]'")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PHONE: "ViewportSize" = {"width": 375, "height": 844}
DESK: "ViewportSize" = {"width": 1200, "height": 900}
PATIENCE = 150_000  # milliseconds: on a busy machine an audit takes that long to begin
PRESS, PRESSES = 5_000, 12
"""How long one press of a key is waited for, and how often it is pressed."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two faces in a head over known features, and a head of noise that no attack ends on."""
    folder = tmp_path_factory.mktemp("serve")
    stream = torch.Generator().manual_seed(0)
    faces = load(DataConfig(name="faces", samples=4)).inputs.reshape(4, 25, 25)
    data = faces[:, ::3, ::3][:, :8, :8].reshape(4, 64)
    data = 8 * data / data.norm(dim=1, keepdim=True)
    rows = torch.randn(600, 64, generator=stream) / 8
    features = (data[:2] @ rows.T).clamp_min(0).double()
    weights = (torch.linalg.pinv(features) @ torch.tensor([1.0, -1.0]).double()).float()
    wide = torch.randn(6000, 64, generator=stream) / 8
    save_file({"fc.weight": weights[None]}, folder / "Gesichter ä.safetensors")
    save_file({"V": rows}, folder / "V.safetensors")
    save_file({"fc.weight": torch.randn(1, 6000, generator=stream)}, folder / "noise.safetensors")
    save_file({"V": wide}, folder / "wide.safetensors")
    for name, part in (("records", data[:2]), ("control", data[2:])):
        save_file({"inputs": part.reshape(2, 1, 8, 8).contiguous()}, folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server of its own, as a user starts it."""
    command = [sys.executable, "-m", "exhume", "serve", "--out", str(folder / "audits"), "--json"]
    environment = os.environ | {"TMPDIR": str(folder)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["address"]
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
        assert "Traceback" not in said
        assert server.returncode == 0
        assert list(folder.glob("exhume-*")) == [], "uploads stayed"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda fault: complaints.append(str(fault)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    context.close()
    assert complaints == []
    assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {address.split("/")[2]}


def overflow(page: "Page") -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def check_looks(page: "Page", name: str, shoot: Callable[..., None]) -> None:
    """By day, by night and on a phone: everything can be read, has a name, and nothing sticks out."""
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(HEADINGS) == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []
        shoot(page, f"serve-{name}-{scheme}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    assert overflow(page) == 0
    shoot(page, f"serve-{name}-phone")
    page.set_viewport_size(DESK)
    assert overflow(page) == 0


def choose(page: "Page", role: str, path: Path) -> None:
    from playwright.sync_api import expect

    page.locator(f"#file-{role}").set_input_files(path)
    expect(page.locator(f".slot[data-role={role}]")).to_have_class(re.compile("full"), timeout=PATIENCE)


def tab_to(page: "Page", selector: str) -> None:
    """Goes on by the tabulator key until it stands on what `selector` names, and shows that it does."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", selector
            return
    raise AssertionError(f"no way to {selector} by the keyboard")


def choose_by_keyboard(page: "Page", role: str, path: Path) -> None:
    """Chromium opens no chooser if it comes to a key more than five seconds after it was pressed, and a busy machine
    does. So the key is pressed again; a chooser that comes late is known by the field that it is for."""
    from playwright.sync_api import TimeoutError as Waited
    from playwright.sync_api import expect

    tab_to(page, f"#file-{role}")
    for _ in range(PRESSES):
        assert page.evaluate("document.activeElement.id") == f"file-{role}"
        try:
            with page.expect_file_chooser(timeout=PRESS) as asked:
                page.keyboard.press("Enter")
        except Waited:
            continue
        if asked.value.element.get_attribute("id") == f"file-{role}":
            asked.value.set_files(path)
            break
    else:
        raise AssertionError(f"no chooser for {role} after {PRESSES} presses of Enter")
    expect(page.locator(f".slot[data-role={role}]")).to_have_class(re.compile("full"), timeout=PATIENCE)


def state(page: "Page", text: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#state")).to_contain_text(text, timeout=PATIENCE)


def test_the_whole_way(page: "Page", folder: Path, keep: Any, address: str) -> None:
    from playwright.sync_api import expect

    start = page.get_by_role("button", name="Start the audit")
    expect(start).to_be_disabled()
    check_looks(page, "empty", keep)

    # an audit without an end is stopped, goes on, and is stopped again
    choose(page, "weights", folder / "noise.safetensors")
    expect(page.locator("#told-weights")).to_contain_text("noise.safetensors: 1 tensor, 6,000 numbers")
    page.locator("#known-features summary").focus()
    page.keyboard.press("Enter")
    choose(page, "features", folder / "wide.safetensors")
    expect(page.locator("#gauge-d")).to_have_value("64")
    page.locator("#gauge-n").fill("5")
    page.locator("#gauge-n").press("Tab")
    expect(page.locator("#gauge-title")).to_have_text("Enough equations for the data")
    expect(page.locator("#gauge-beyond")).to_be_hidden()
    expect(page.locator("#gauge-drawing svg")).to_be_visible()
    page.locator("#image-shape").fill("1,8,8")
    check_looks(page, "chosen", keep)
    start.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/audits/*")
    state(page, "At work.")
    expect(page.locator("#attack")).to_contain_text("split-newton")
    expect(page.locator("#pictures img").first).to_be_visible()
    check_looks(page, "working", keep)
    # Stop and Go on take each other's place, and the keyboard stays where it was
    page.locator("#stop").press("Enter")
    state(page, "Stopped.")
    frame = page.frame_locator("iframe")
    expect(frame.locator("h1")).to_contain_text("Inconclusive")
    expect(page.locator("#resume")).to_be_focused()
    page.keyboard.press("Enter")
    state(page, "At work.")
    expect(page.locator("#stop")).to_be_focused()
    page.keyboard.press("Enter")
    state(page, "Stopped.")
    expect(frame.locator("h1")).to_contain_text("Inconclusive")

    # the files are still there; faces, with records and a defence, come back
    page.get_by_role("link", name="all files and audits").click()
    expect(page.locator("#told-weights")).to_contain_text("noise.safetensors")
    for role, name in (("weights", "Gesichter ä"), ("features", "V"), ("truth", "records"), ("control", "control")):
        choose(page, role, folder / f"{name}.safetensors")
    expect(page.locator("#gauge-n")).to_have_value("2")
    expect(page.locator("#gauge-title")).to_have_text("Enough equations for the data")
    page.locator("#image-shape").fill("")
    page.locator("#budget").select_option("1m")
    start.click()
    page.wait_for_url("**/audits/Gesichter*")
    state(page, "Done. Recovered: 2 of 2")
    expect(frame.locator("h1")).to_contain_text("Recovered: 2 of 2 training images")
    check_looks(page, "done", keep)
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None, "the frame has no origin of ours"
    first = page.url
    page.get_by_label("int8").check()
    page.get_by_role("button", name="Audit again").click()
    page.wait_for_url(lambda url: url != first)
    state(page, "Done. Recovered: 2 of 2")

    page.goto(address)
    boxes = page.locator("#compare-form input[type=checkbox]")
    expect(boxes).to_have_count(3)
    boxes.nth(0).check()
    boxes.nth(2).check()
    check_looks(page, "audits", keep)
    page.get_by_role("button", name="Compare the chosen ones").click()
    expect(page.locator("tr.differs").first).to_contain_text("Verdict")
    expect(page.locator("main")).to_contain_text("with defences")
    check_looks(page, "compare", keep)
    page.set_viewport_size(PHONE)
    second = page.locator("tbody td").nth(1).bounding_box()
    assert second is not None
    assert second["x"] < PHONE["width"], "both audits begin on a phone's screen"
    page.set_viewport_size(DESK)


@pytest.mark.parametrize("name", ["large.safetensors", "large.pt"])
def test_a_large_file_is_answered_before_it_has_arrived(
    browser: "Browser", address: str, tmp_path: Path, name: str
) -> None:
    """The upload itself is held back: whatever the page says, it says by the parts that it sent ahead."""
    from playwright.sync_api import expect

    state = {"0.weight": torch.zeros(2000, 3072), "0.bias": torch.zeros(2000), "2.weight": torch.zeros(10, 2000)}
    write_state(state, tmp_path / name)
    page = browser.new_page(viewport=DESK)
    page.set_default_timeout(PATIENCE)
    page.route("**/files?*", lambda route: None)
    page.goto(address)
    page.locator("#file-weights").set_input_files(tmp_path / name)
    expect(page.locator("#scan-sentence")).to_contain_text("First look", timeout=PATIENCE)
    expect(page.locator("#scan-sentence")).to_contain_text("No: nothing that a scan knows of was found")
    expect(page.locator("#told-weights")).to_contain_text("3 tensors, 6,166,000 numbers")
    expect(page.locator("#gauge-p")).to_have_value("20000")
    expect(page.locator("#gauge-d")).to_have_value("3072")
    page.close()


def write_state(state: dict[str, torch.Tensor], path: Path) -> None:
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)


def test_a_table_is_dropped_and_audited_in_its_own_units_by_keyboard_alone(
    browser: "Browser", address: str, tmp_path: Path, keep: Any
) -> None:
    from playwright.sync_api import expect
    from serve_answer import drop_file

    stream = torch.Generator().manual_seed(0)
    cells = (50 + 10 * torch.randn(16, 12, generator=stream)).round(decimals=1)
    for name, part in (("people", cells[:8]), ("others", cells[8:])):
        lines = [
            ",".join([*(f"{value:.1f}" for value in row), "no" if at % 2 else "yes"]) for at, row in enumerate(part)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join([*(f"m{at}" for at in range(12)), "ill"]), *lines]))
    rows = (cells[:8] - cells[:8].mean(dim=0)) / cells[:8].std(dim=0, correction=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(12, 200), torch.nn.ReLU(), torch.nn.Linear(200, 2))
        save_file(model.state_dict(), tmp_path / "before.safetensors")
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(80):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(rows), 1 - torch.arange(8) % 2).backward()
            optimiser.step()
        save_file(model.state_dict(), tmp_path / "after.safetensors")
    page = browser.new_page(viewport=DESK)
    page.set_default_timeout(PATIENCE)
    # a listener that stays keeps the choosers caught: one that comes and goes with every file loses a race when busy
    page.on("filechooser", lambda chooser: None)
    page.goto(address)
    expect(page.locator("#table")).to_be_hidden()
    drop_file(page, ".slot[data-role=weights]", tmp_path / "after.safetensors")
    expect(page.locator("#told-weights")).to_contain_text("after.safetensors: 4 tensors")
    expect(page.locator("#gauge-title")).to_have_text("Last layer alone: number of samples unknown")
    expect(page.locator("#gauge-beyond")).to_contain_text("The gauge says nothing of them")
    for role, name in (("initial", "before.safetensors"), ("truth", "people.csv"), ("control", "others.csv")):
        choose_by_keyboard(page, role, tmp_path / name)
    expect(page.locator("#told-truth")).to_contain_text("people.csv: 8 records, CSV")
    expect(page.locator("#gauge-n")).to_have_value("8")
    expect(page.locator("#gauge-title")).to_contain_text("Last layer alone: ")
    expect(page.locator("#gauge-beyond")).to_contain_text("may give everything away")
    expect(page.locator("#gauge-drawing svg")).to_have_attribute("aria-label", re.compile("thresholds n = 8"))
    expect(page.locator("#gauge-of")).to_contain_text("Of the 3,002 numbers in the file")
    expect(page.locator("#label")).to_have_value("ill")
    tab_to(page, "#scaling")
    page.keyboard.type("mean")
    expect(page.locator("#scaling")).to_have_value("standard")
    check_looks(page, "table", keep)
    tab_to(page, "#audit-form button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audits/after*")
    state(page, "Done. Recovered: 8 of 8 training records")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".answer")).to_contain_text("Can training data be read from these weights? Yes.")
    expect(frame.locator("#cells")).to_contain_text("m11")
    first = page.url
    tab_to(page, "#again-int8")
    page.keyboard.press("Space")
    tab_to(page, "#again-form button")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != first)
    state(page, "Done. Recovered: 8 of 8 training records")
    expect(frame.locator("#defences, #what-if, body").first).to_contain_text("int8")
    page.close()
