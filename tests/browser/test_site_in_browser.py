"""The documentation site in a browser: it can be read by day, by night and on a phone, and used without a mouse."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from page_checks import CONTRAST, HEADINGS, UNNAMED

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
NO_TEXT = "() => [...document.querySelectorAll('img')].filter((e) => !e.alt.trim()).map((e) => e.src)"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="no site builder: pip install 'exhume[docs]'")
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_and_used(browser: "Browser", site: Path, scheme: Any) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    outside: list[str] = []
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else outside.append(request.url)
    )
    files = sorted(site.rglob("*.html"))
    assert len(files) > 30
    for file in files:
        name = str(file.relative_to(site))
        page.goto(file.as_uri())
        wrong = {what: page.evaluate(what) for what in (CONTRAST, HEADINGS, UNNAMED, NO_TEXT)}
        assert not any(wrong.values()), (name, [found for found in wrong.values() if found])
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.title().strip()
        page.set_viewport_size({"width": 375, "height": 844})
        assert page.evaluate(SIDEWAYS) == 0, name
        page.set_viewport_size({"width": 1200, "height": 900})
    context.close()
    assert outside == [], "the site asks nobody for anything"


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_search_finds_a_page(browser: "Browser", served: str) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(f"{served}index.html")
    page.get_by_placeholder("Search").click()
    page.keyboard.type("differential privacy")
    expect(page.locator(".md-search-result__link[href*='defences.html']").first).to_be_attached(timeout=60_000)
    page.close()
