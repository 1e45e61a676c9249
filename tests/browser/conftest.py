"""A real browser: Chromium of this machine, driven by Playwright. Without one these tests skip, and say so."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from exhume.attacks.running.snapshots import Snapshot, save_snapshots
from exhume.data.config import DataConfig
from exhume.data.load import load
from exhume.experiments.run import RunFolder
from exhume.reconstruction import Certificate, Outcome, Reconstruction
from exhume.report.page import write_page
from exhume_papers.making.training_run import train_run
from exhume_papers.victims.random_features import RandomFeaturesConfig
from run_content import collect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60_000  # milliseconds: what stands on a page after a moment takes longer on a busy machine
VIEWPORT: "ViewportSize" = {"width": 1200, "height": 900}


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser driver: pip install playwright")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed")
    with playwright.sync_playwright() as driver:
        # inside a container Chromium has no sandbox of its own; the page is ours, and there is no network for it
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        playwright.expect.set_options(timeout=PATIENCE)
        yield started
        started.close()


def faces_run(folder: Path) -> RunFolder:
    """Four faces with a made-up recovery: three closer than 0.1, one lost, three snapshots on the way."""
    import torch

    config = DataConfig(name="faces", samples=4)
    train_run(folder, config, RandomFeaturesConfig(params=60), load(config))
    run = RunFolder(folder)
    rows, stream = run.truth().inputs, torch.Generator().manual_seed(5)
    noise = torch.randn(rows.shape, generator=stream)
    found = rows + noise * torch.tensor([1e-4, 0.02, 0.05, 3.0])[:, None]
    certificate = Certificate(Outcome.PARTIAL, 0.02, 3, ())
    settings = {"samples": None, "held_out": 0.05}
    run.save_attack(
        Reconstruction(found, torch.rand(4, 1), "split-newton", certificate, 1e-3, 90, 300.0, 1.5, 99.0, 3, settings),
        [{"iteration": float(i), "loss": 0.9**i, "passes": 3.0 * i} for i in range(91)],
    )
    shots = tuple(Snapshot(i, 3.0 * i, 0.9**i, rows + noise * 2.0 ** (1 - i / 10)) for i in (0, 30, 60))
    save_snapshots(shots, folder / "snapshots.safetensors")
    return run


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page with blurred and with sharp pictures, and one without records."""
    folder = tmp_path_factory.mktemp("pages")
    run = faces_run(folder / "run")
    contents: dict[str, Any] = {"blurred": collect(run, reveal=False), "sharp": collect(run, reveal=True)}
    (run.path / "truth.safetensors").unlink()
    contents["no truth"] = collect(run, reveal=False)
    for name, content in contents.items():
        write_page(content, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in contents}


@dataclass
class Opened:
    """A page, and what it has asked of the network or complained about."""

    page: "Page"
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def opened(browser: "Browser", pages: dict[str, Path]) -> "Iterator[Callable[[str], Opened]]":
    """Each page is opened once: a browser takes longer to open one than to use it."""
    cached: dict[str, Opened] = {}

    def open_once(name: str) -> Opened:
        if name not in cached:
            cached[name] = open_page(browser, pages[name])
        return cached[name]

    yield open_once
    for one in cached.values():
        one.page.context.close()


def open_page(browser: "Browser", path: Path, **options: Any) -> Opened:
    context = browser.new_context(viewport=VIEWPORT, permissions=["clipboard-read", "clipboard-write"], **options)
    context.set_default_timeout(PATIENCE)
    opened = Opened(context.new_page())
    opened.page.on("request", lambda request: opened.requests.append(request.url))
    opened.page.on("console", lambda said: opened.complaints.append(f"{said.type}: {said.text}"))
    opened.page.on("pageerror", lambda fault: opened.complaints.append(str(fault)))
    opened.page.goto(path.as_uri())
    return opened


@pytest.fixture
def visit(opened: Callable[[str], Opened]) -> "Iterator[Callable[[str], Opened]]":
    """A page at the size of a desk, by daylight; whatever a test changes of that is undone."""
    visited: list[Opened] = []

    def go(name: str = "blurred") -> Opened:
        visited.append(opened(name))
        return visited[-1]

    yield go
    for one in visited:
        one.page.set_viewport_size(VIEWPORT)
        one.page.emulate_media(media="screen", color_scheme="light")


@pytest.fixture
def without_script(browser: "Browser", pages: dict[str, Path]) -> "Iterator[Page]":
    one = open_page(browser, pages["blurred"], java_script_enabled=False)
    yield one.page
    one.page.context.close()


@pytest.fixture
def keep() -> Callable[["Page", str], None]:
    """Screenshots go to the folder that EXHUME_ARTEFACTS names, for people to look at."""

    def shoot(page: "Page", name: str) -> None:
        folder = os.environ.get("EXHUME_ARTEFACTS")
        if folder:
            page.screenshot(path=Path(folder) / f"report-{name}.png", full_page=True)

    return shoot
