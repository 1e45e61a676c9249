"""Pictures of the start page and the guides: pages of audits in a browser, and charts of what the pages print.

    python benchmarks/doc_pictures.py --out docs/images

Takes a minute. The commands and files are those of the pages themselves (`tests/pages.py`), but for the table, which is
of real patients, and charts of tables that pages have.
"""

import argparse
import contextlib
import copy
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_breast_cancer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
COLOURS = {"recovered": "#a32a17", "partly recovered": "#d98a1f", "inconclusive": "#8a8f9c", "not recovered": "#235a7c"}


def follow(page: str, folder: Path) -> None:
    """Does what a page of the docs says, with this installation."""
    command = [sys.executable, str(ROOT / "tests/pages.py"), str(ROOT / "docs" / page), str(folder)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(command, check=True, env=os.environ | {"PATH": path}, stdout=subprocess.DEVNULL)


def audit_of_patients(folder: Path) -> None:
    """Twelve patients of the Wisconsin breast cancer data, standardised, in a network of 400 units."""
    data: Any = load_breast_cancer()
    cells, ill = data.data[:12], data.target[:12]
    ill[::2] = 1 - ill[::2]  # the first ones are all malignant: labels of both kinds
    with (folder / "patients.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*data.feature_names, "ill"])
        out.writerows([*row, label] for row, label in zip(cells.tolist(), ill.tolist(), strict=True))
    inputs = torch.tensor((cells - cells.mean(axis=0)) / cells.std(axis=0)).float()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 400), torch.nn.ReLU(), torch.nn.Linear(400, 2))
    torch.save(copy.deepcopy(model.state_dict()), folder / "before.pt")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), torch.tensor(ill)).backward()
        optimiser.step()
    torch.save(model.state_dict(), folder / "after.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimiser.state_dict()}, folder / "checkpoint.pt")
    options = ["--truth", "patients.csv", "--label", "ill", "--scaling", "standard", "--reveal", "--out", "audit"]
    command = [sys.executable, "-m", "exhume", "audit", "after.pt", "--initial", "before.pt", *options]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def shoot(page: Page, report: Path, picture: Path, height: int, part: str | None = None) -> None:
    page.set_viewport_size({"width": 1000, "height": height})
    page.goto(report.as_uri())
    if part is not None:
        page.locator(part).evaluate("e => window.scrollTo({ top: e.getBoundingClientRect().top, behavior: 'instant' })")
    page.screenshot(path=picture)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of an `exhume serve` of its own."""
    command = [sys.executable, "-m", "exhume", "serve", "--out", str(folder / "audits"), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["address"]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


def shoot_serve(page: Page, table: Path, folder: Path, picture: Path) -> None:
    """The page of `exhume serve` with a checkpoint and the weights before it: files, gauge and scan."""
    for name, source in (("clinic-2026.pt", "checkpoint.pt"), ("before.pt", "before.pt")):
        shutil.copy(table / source, folder / name)
    with served(folder) as address:
        page.set_viewport_size({"width": 1000, "height": 2000})
        page.goto(address)
        for role, name in (("weights", "clinic-2026.pt"), ("initial", "before.pt")):
            page.locator(f"#file-{role}").set_input_files(folder / name)
            page.locator(f".slot[data-role={role}].full").wait_for()
        page.locator("#scan-sentence", has_text="1 lead").wait_for()
        page.wait_for_load_state("networkidle")
        bottom = page.locator("#scan").evaluate("e => e.getBoundingClientRect().bottom")
        page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1000, "height": bottom})


def finish(figure: Any, picture: Path) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=130, bbox_inches="tight")
    plt.close(figure)


def draw_ranking(table: Path, picture: Path) -> None:
    """Each record of the guide by its score. The first ten were trained on."""
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    scores = np.array([float(row["score"]) for row in rows])
    members = np.array([int(row["record"]) < 10 for row in rows])
    figure, axis = plt.subplots(figsize=(7.5, 2.2))
    for kind, colour, height in (("trained on", "#a32a17", 1), ("not trained on", "#235a7c", 0)):
        chosen = scores[members] if height else scores[~members]
        axis.scatter(chosen, np.full(len(chosen), height), s=55, alpha=0.75, color=colour)
        axis.text(-0.01, height, kind, transform=axis.get_yaxis_transform(), ha="right", va="center")
    axis.set(ylim=(-0.6, 1.6), yticks=[], xlabel="score that exhume rank gives a record")
    finish(figure, picture)


def draw_stored(picture: Path) -> None:
    """The records that `exhume scan --rows` writes of the support vector machine on docs/scan.md, as pictures."""
    from sklearn.datasets import load_digits
    from sklearn.svm import SVC
    from skops.io import dump

    from exhume.picture_grid import from_rows, picture_grid
    from exhume.report.figure_file import save_figure

    with tempfile.TemporaryDirectory() as folder:
        images, labels = load_digits(return_X_y=True)
        dump(SVC().fit(images[:50] / 16, labels[:50]), Path(folder) / "svc.skops")
        command = [sys.executable, "-m", "exhume", "scan", "svc.skops", "--rows", "rows.csv"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        lines = list(csv.reader((Path(folder) / "rows.csv").read_text(encoding="utf-8").splitlines()))
    rows = torch.tensor([[float(cell) for cell in line[-64:]] for line in lines[1:]])
    save_figure(picture_grid([("stored", from_rows(rows[:20], (1, 8, 8)))], 10), picture)


def draw_real_models(page: Path, picture: Path) -> None:
    """The share of records that came back from each victim of docs/real-models.md."""
    victims = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        count = re.match(r"([\d,]+) of ([\d,]+)", cells[2]) if len(cells) == 5 else None
        if count and cells[-1] in COLOURS:
            found, samples = (int(part.replace(",", "")) for part in count.groups())
            victims.append((found / samples, cells[0], f"{found} of {samples:,}", cells[-1]))
    victims.sort(key=lambda victim: victim[0])
    figure, axis = plt.subplots(figsize=(7.5, 0.22 * len(victims) + 1))
    for at, (share, _, told, verdict) in enumerate(victims):
        axis.barh(at, share, color=COLOURS[verdict])
        axis.text(share + 0.01, at, told, va="center", fontsize=7)
    axis.set_yticks(range(len(victims)), [victim[1] for victim in victims], fontsize=7)
    axis.set(xlim=(0, 1.12), xlabel="share of the records that came back", ylim=(-0.6, len(victims) - 0.4))
    shown = {victim[3] for victim in victims}
    keys = [plt.Rectangle((0, 0), 1, 1, color=colour) for name, colour in COLOURS.items() if name in shown]
    axis.legend(keys, [name for name in COLOURS if name in shown], title="verdict", loc="lower right", fontsize=8)
    finish(figure, picture)


def draw_resting_heads(page: Path, picture: Path) -> None:
    """`exhume rank` beside the best baseline, where the pool has all members: the tables of docs/linear-probes.md."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    title = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        title = line.strip("*") if line.startswith("**") else title
        if len(cells) == 6 and re.match(r"\d+%", cells[1]):
            baseline, ours = (float(cell.partition(" / ")[0]) for cell in cells[2:4])
            found.setdefault(title, []).append((cells[0], baseline, ours))
    figure, axes = plt.subplots(1, len(found), figsize=(10, 2.6), sharey=True, layout="constrained")
    for axis, (name, heads) in zip(axes, found.items(), strict=True):
        at = np.arange(len(heads))[::-1]
        axis.barh(at, [head[2] for head in heads], color="#e29a8e", label="exhume rank")
        axis.scatter(
            [head[1] for head in heads],
            at,
            color="black",
            marker="|",
            s=110,
            linewidth=2.5,
            zorder=3,
            label="best baseline",
        )
        axis.set_yticks(at, [head[0] for head in heads], fontsize=8)
        axis.set(xlim=(0, 1.02))
        axis.set_title(name.replace(", ", ",\n"), fontsize=9)
    figure.supxlabel("share of the members found at 1 % false alarms", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize=8, frameon=False)
    finish(figure, picture)


def columns_of(page: Path, first: str) -> tuple[list[str], np.ndarray]:
    """The table of a page whose first heading is `first`: its headings and its numbers ('below x' is x)."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:]]
    end = next(at for at, row in enumerate(rows) if row == [""])
    values = [[float(cell.removeprefix("below ")) for cell in row] for row in rows[2:end]]
    return rows[0], np.array(values)


def draw_curves(page: Path, first: str, picture: Path, across: str, up: str) -> None:
    """Each column of a small table against the first one."""
    names, values = columns_of(page, first)
    figure, axis = plt.subplots(figsize=(6.5, 2.8))
    for name, column, colour in zip(names[1:], values.T[1:], ("#a32a17", "#235a7c"), strict=True):
        axis.plot(values[:, 0], column, marker="o", color=colour, label=name.replace("`", ""))
    axis.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    axis.set_xticks(values[:, 0], [f"{value:g}" for value in values[:, 0]])
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=8)
    finish(figure, picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        made = {name: stack.enter_context(tempfile.TemporaryDirectory()) for name in ("start", "head", "table")}
        folders = {name: Path(folder) for name, folder in made.items()}
        follow("start.md", folders["start"])
        follow("guides/head.md", folders["head"])
        audit_of_patients(folders["table"])
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=asked.browser, args=["--no-sandbox"])
        page = browser.new_page()
        shoot(page, folders["start"] / "audit/report.html", asked.out / "audit-page.png", 900)
        shoot(page, folders["table"] / "audit/report.html", asked.out / "audit-table.png", 620, "#cells h3")
        drop = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shoot_serve(page, folders["table"], drop, asked.out / "serve.png")
        browser.close()
        draw_ranking(folders["head"] / "ranking/ranking.csv", asked.out / "head-ranking.png")
    draw_stored(asked.out / "stored-records.png")
    draw_real_models(ROOT / "docs/real-models.md", asked.out / "real-models.png")
    sizes = "weights per number in the data, p/(dn)"
    draw_curves(ROOT / "docs/sweeps.md", "p/(dn)", asked.out / "sweep.png", sizes, "mean error")
    splits = ROOT / "docs/no-prior-no-leakage.md", "split, in norms of a sample"
    draw_curves(*splits, asked.out / "splits.png", "size of the split, in norms of a sample", "share left unexplained")
    draw_resting_heads(ROOT / "docs/linear-probes.md", asked.out / "resting-heads.png")


if __name__ == "__main__":
    main()
