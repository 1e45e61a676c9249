"""How soon a report can be used: from the start of navigation until the last handler of the page is in place.

    python benchmarks/page_opening.py REPORT.html [--openings 9] [--chromium /usr/bin/chromium]

Each opening has a browser context of its own, so nothing is cached. Also prints how much processor time the page's main
thread took, which a busy machine does not change much.
"""

import argparse
import statistics
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

READY = "performance.getEntriesByName('ready')[0].startTime"


def open_once(browser: Browser, page: Path) -> tuple[float, float]:
    """Milliseconds until the page is ready, and of processor time."""
    context = browser.new_context()
    opened = context.new_page()
    session = context.new_cdp_session(opened)
    session.send("Performance.enable")
    opened.goto(page.resolve().as_uri())
    ready = float(opened.evaluate(READY))
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    context.close()
    return ready, 1000 * metrics["ThreadTime"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--openings", type=int, default=9)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        times = [open_once(browser, options.report) for _ in range(options.openings)]
        browser.close()
    ready, processor = zip(*times, strict=True)
    print(
        f"{options.report}: {options.report.stat().st_size / 1e3:.0f} kB, {options.openings} openings: ready after "
        f"{statistics.median(ready):.0f} ms (median; {min(ready):.0f} to {max(ready):.0f}), "
        f"{statistics.median(processor):.0f} ms of processor time"
    )


if __name__ == "__main__":
    main()
