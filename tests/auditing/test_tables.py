"""Tables in, tables out: the owner's columns and units, from a file to the page."""

import copy
import csv
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from torch import nn

from exhume.auditing.records import TableOptions, read_records
from exhume.auditing.table_scaling import scale
from exhume.data.tables.reading import read_table
from exhume.data.tables.table import Table
from exhume.errors import ExhumeError
from published_files import fitted, save_skops

Command = Callable[..., subprocess.CompletedProcess[str]]
CITIES = ("Bern", "Oslo", "Ulm")
NAMES = ("age", "income", "city", *(f"m{at}" for at in range(20)), "ill")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def records(n: int, seed: int) -> list[list[object]]:
    dice = np.random.default_rng(seed)
    return [
        [
            int(dice.integers(18, 90)),
            round(float(dice.lognormal(3, 0.5)), 2),
            CITIES[at % 3],
            *(round(float(value), 1) for value in dice.normal(5, 2, 20)),
            int(dice.integers(0, 2)),
        ]
        for at in range(n)
    ]


def write_csv(path: Path, lines: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *lines])
    return path


def write_parquet(path: Path, lines: list[list[object]]) -> Path:
    columns = dict(zip(NAMES, map(list, zip(*lines, strict=True)), strict=True))
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_table_becomes_rows_as_scikit_learn_makes_them_and_comes_back(write: Callable[..., Path]) -> None:
    lines = records(9, 0)
    path = write(Path("a.csv" if write is write_csv else "a.parquet"), lines)
    table = scale(read_table(path), "standard")
    numbers = np.array([[line[0], line[1], *line[3:]] for line in lines], float)
    own = StandardScaler().fit_transform(numbers)
    city = OneHotEncoder().fit_transform([[line[2]] for line in lines]).toarray()
    made = np.concatenate([own[:, :2], city, own[:, 2:]], axis=1)
    np.testing.assert_allclose(table.rows().numpy(), made, atol=1e-6)
    noisy = table.rows() + 1e-6 * torch.randn(table.rows().shape, generator=torch.Generator().manual_seed(0))
    assert [table.back(row) for row in noisy] == [tuple(line) for line in lines]
    assert [column.decimals for column in table.columns[:2]] == [0, 2]


def test_a_column_of_hundreds_is_rounded_to_hundreds() -> None:
    Path("a.csv").write_text(
        "wage,age\n" + "\n".join(f"{wage},{30 + wage // 900}" for wage in range(40100, 41000, 100))
    )
    table = scale(read_table(Path("a.csv")), "standard")
    assert [column.decimals for column in table.columns] == [-2, 0]
    wage, age = table.back(table.rows()[3] + 0.1)
    assert wage == table.record(3)[0]
    assert age == table.record(3)[1]


def test_scales_come_from_json_and_from_a_scaler(tmp_path: Path) -> None:
    lines = [[line[0], line[1]] for line in records(9, 1)]
    Path("a.csv").write_text("age,income\n" + "\n".join(f"{a},{b}" for a, b in lines))
    table = read_table(Path("a.csv"))
    for scaler in (StandardScaler(), MinMaxScaler()):
        path = save_skops(fitted(scaler, np.array(lines, float), None), tmp_path / "scaler.skops")
        np.testing.assert_allclose(scale(table, str(path)).rows(), scaler.transform(np.array(lines, float)), atol=1e-6)
    Path("s.json").write_text('{"age": [50, 10], "income": [0, 1000.5]}')
    np.testing.assert_allclose(
        scale(table, "s.json").rows(), (np.array(lines, float) - [50, 0]) / [10, 1000.5], rtol=1e-6
    )
    np.testing.assert_allclose(
        scale(table, "minmax").rows(), MinMaxScaler().fit_transform(np.array(lines, float)), atol=1e-6
    )


def test_a_control_table_takes_the_scaling_and_the_categories_of_the_records() -> None:
    write_csv(Path("a.csv"), records(9, 0))
    write_csv(Path("b.csv"), records(2, 5))  # two of three cities
    how = TableOptions("ill", "standard")
    truth = read_records(Path("a.csv"), how=how)
    control = read_records(Path("b.csv"), how=how, like=truth)
    assert truth.table is not None
    assert control.inputs.shape == (2, truth.table.width)
    assert control.table is not None
    assert control.table.columns == truth.table.columns
    assert sorted(set(truth.labels.tolist())) == [0.0, 1.0]


def test_arrays_are_records() -> None:
    x, y = np.random.default_rng(0).normal(size=(5, 3)), np.arange(5) % 2
    np.savez("a.npz", x_train=x, y_train=y)
    np.save("b.npy", x)
    found = read_records(Path("a.npz"))
    np.testing.assert_allclose(found.inputs, x, rtol=1e-6)
    assert found.labels.tolist() == y.tolist()
    np.testing.assert_allclose(read_records(Path("b.npy")).inputs, x, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "a,b\n1,2\n3\n", "expected 2 cells per line in a.csv, found 1 in line 3"),
        ("a.csv", "a,b\n1,\n", "found none in record 1 of 'b'"),
        ("a.csv", "a,a\n1,2\n", "columns of different names"),
        ("a.csv", "a,b\n", "expected records in a.csv, found none"),
        ("a.csv", "", "found none"),
        ("a.csv", "a\n" + "\n".join(f"id{at}" for at in range(1001)), "at most 1,000 categories"),
        ("a.csv", "a\x1b,b\n1,2\n", "columns of different names"),
        ("a.csv", "a\n" + "x" * 20_000, "short cells"),
        ("a.parquet", "PAR1 no parquet PAR1", "a whole Parquet file"),
    ],
)
def test_a_bad_table_is_one_line(name: str, content: str, words: str) -> None:
    Path(name).write_text(content)
    with pytest.raises(ExhumeError, match=words) as refused:
        read_table(Path(name))
    assert "\n" not in str(refused.value)


def test_a_table_that_unpacks_to_more_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": np.zeros(10_000_000)}), "a.parquet")
    assert Path("a.parquet").stat().st_size < 100_000
    monkeypatch.setattr("exhume.data.tables.reading.MOST_CELLS", 1_000_000)
    with pytest.raises(ExhumeError, match="claims of more"):
        read_table(Path("a.parquet"))
    pq.write_table(pa.table({"a": [[1], [2]]}), "b.parquet")
    with pytest.raises(ExhumeError, match="expected numbers and texts"):
        read_table(Path("b.parquet"))


def peak_of_reading(path: Path) -> int:
    """Megabytes by which the process grew."""
    line = (
        "import resource, sys; from pathlib import Path; import pyarrow.parquet; "
        "from exhume.data.tables.reading import read_table; told = lambda: "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = told(); table = read_table(Path(sys.argv[1])); "
        "print(len(table), table.record(0), (told() - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", line, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("cell", [0.0, "x" * 1000], ids=["numbers", "texts"])
def test_a_table_takes_no_more_memory_than_its_numbers(cell: float | str) -> None:
    """Four million equal cells in a small file: an array of them, and no object or copy of a text for each."""
    values = pa.array([cell]).take(pa.array(np.zeros(100_000, np.int32)))
    with pq.ParquetWriter("a.parquet", pa.schema([("a", values.type)])) as writer:
        for _ in range(40):
            writer.write_table(pa.table({"a": values}))
    assert Path("a.parquet").stat().st_size < 1_000_000
    assert peak_of_reading(Path("a.parquet")) < 250


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_too_many_columns_are_refused(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.data.tables.reading.MOST_COLUMNS", 3)
    path = Path(f"a.{suffix}")
    if suffix == "csv":
        path.write_text("a,b,c,d\n1,2,3,4\n")
    else:
        pq.write_table(pa.table({name: [1] for name in "abcd"}), path)
    with pytest.raises(ExhumeError, match="at most 3 columns"):
        read_table(path)


def test_a_parquet_file_reads_as_the_same_csv() -> None:
    lines = {
        "a": [1.5, 2.25, 1e20],
        "b": [100, 200, -300],
        "c": ["Ulm", "Bern", "Ulm"],
        "d": [True, False, True],
        "e": ["1.50", "2", "3.125"],
    }
    pq.write_table(pa.table(lines), "a.parquet", row_group_size=2)
    with Path("a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([lines, *zip(*({**lines, "d": [1, 0, 1]}).values(), strict=True)])
    one, other = read_table(Path("a.parquet")), read_table(Path("a.csv"))
    assert one.columns == other.columns
    assert [one.record(at) for at in range(3)] == [other.record(at) for at in range(3)]
    pq.write_table(pa.table({"a": [1.0, float("nan")]}), "b.parquet")
    with pytest.raises(ExhumeError, match="found none in record 2"):
        read_table(Path("b.parquet"))


def test_categories_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.data.tables.table.MOST_NUMBERS", 8)
    Path("a.csv").write_text("a\nx\ny\nz\n")
    with pytest.raises(ExhumeError, match="at most 8 numbers"):
        read_table(Path("a.csv")).rows()


def trained_on(table: Table, labels: torch.Tensor) -> None:
    """25 columns, 600 units: before.safetensors and after.safetensors."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rows = table.rows()
        model = nn.Sequential(nn.Linear(rows.shape[1], 600), nn.ReLU(), nn.Linear(600, 2))
        save_file(copy.deepcopy(model.state_dict()), "before.safetensors")
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(rows), labels.long()).backward()
            optimiser.step()
        save_file(model.state_dict(), "after.safetensors")


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_audit_of_a_table_ends_in_a_table(exhume: Command) -> None:
    lines = records(8, 3)
    write_csv(Path("train.csv"), lines)
    write_parquet(Path("others.parquet"), records(8, 4))
    truth = read_records(Path("train.csv"), how=TableOptions("ill", "standard"))
    assert truth.table is not None
    trained_on(truth.table, truth.labels)
    asked = ("--truth", "train.csv", "--control", "others.parquet", "--label", "ill", "--scaling", "standard")
    for out, reveal in (("hidden", ()), ("shown", ("--reveal",))):
        done = exhume(
            *("audit", "after.safetensors", "--initial", "before.safetensors", *asked),
            *("--budget", "60s", "--json", "--out", out, *reveal),
        )
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["recovered"], found["exact_rows"]) == ("recovered", 8, 1.0)
    assert found["exact_columns"] == dict.fromkeys(NAMES[:-1], 1.0)
    with Path("shown/recovered.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["record", *NAMES[:-1]]
    back = {int(row[0]): [cell if cell in CITIES else float(cell) for cell in row[1:]] for row in rows}
    assert [back[at] for at in range(8)] == [line[:-1] for line in lines]
    assert stat.S_IMODE(Path("shown/recovered.csv").stat().st_mode) == 0o600
    secrets = [text for line in lines if len(text := f"{line[1]:.12g}") >= 5]
    assert len(secrets) >= 5
    assert all(secret in Path("shown/report.html").read_text() for secret in secrets)
    assert sorted(path.name for path in Path("hidden").iterdir()) == ["report.html", "report.json", "summary.json"]
    for text in (path.read_text() for path in Path("hidden").iterdir()):
        assert not [secret for secret in secrets if f">{secret}<" in text or f'"{secret}"' in text]
    page = Path("hidden/report.html").read_text()
    assert "100 % of the records are exact" in page.replace("\u202f", " ").replace("100%", "100 %")
    assert "income" in page
    assert "8 of 8 training records can be read from the weights" in page
    shown = json.loads(Path("shown/report.json").read_text())["table"]["columns"]
    assert {column["name"]: column["off"] for column in shown} == dict.fromkeys(NAMES[:-1], 0.0) | {"city": None}
