"""How long `exhume serve` takes to answer a large file that is dropped on its page, in a real browser.

    python benchmarks/serve_answer.py --megabytes 500

Two files of that size are made, and dropped one after the other: gauge and first scan, then the whole file.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright
from safetensors.torch import save_file

WIDTH = 4096
PATIENCE = 120_000  # milliseconds


def make_files(folder: Path, megabytes: int) -> list[Path]:
    layers = max(1, megabytes * 2**20 // (4 * WIDTH * WIDTH))
    state = {f"layers.{index}.weight": torch.randn(WIDTH, WIDTH) for index in range(layers)}
    state["head.weight"] = torch.randn(10, WIDTH)
    save_file(state, folder / "large.safetensors")
    torch.save(state, folder / "large.pt")
    return [folder / "large.safetensors", folder / "large.pt"]


def drop_file(page: Page, selector: str, path: Path) -> None:
    """Drags a file onto what `selector` names, as a hand with a mouse does."""
    place = page.locator(selector).bounding_box()
    assert place is not None
    middle = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
    carried = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    hand = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        hand.send("Input.dispatchDragEvent", {"type": kind, "data": carried} | middle)


def answered(page: Page, address: str, path: Path) -> dict[str, float]:
    """Seconds from the drop until each answer stands on the page."""
    page.goto(address)
    began, told = time.monotonic(), {}
    drop_file(page, ".slot[data-role=weights]", path)
    for name, shown in (("gauge", "#gauge-title:not(:empty)"), ("scan", "#scan-sentence:not(:empty)")):
        page.locator(shown).wait_for(timeout=PATIENCE)
        told[name] = round(time.monotonic() - began, 2)
    page.locator(".slot.full").wait_for(timeout=PATIENCE)
    return told | {"whole": round(time.monotonic() - began, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), asked.megabytes)
        command = [sys.executable, "-m", "exhume", "serve", "--json", "--out", f"{folder}/audits"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=asked.browser, args=["--no-sandbox"])
                for path in files:
                    seconds = answered(browser.new_page(), address, path)
                    print(json.dumps({"file": path.name, "bytes": path.stat().st_size} | seconds))
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


if __name__ == "__main__":
    main()
