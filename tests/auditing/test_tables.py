"""Tables in, tables out: the owner's columns and units, from a file to the page."""

import copy
import csv
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from torch import nn

from exhume.auditing.from_files import read_question
from exhume.auditing.records import TableOptions, read_records
from exhume.auditing.table_scaling import scale
from exhume.data.tables.reading import read_table
from exhume.data.tables.table import Table
from exhume.errors import ExhumeError, UsageError
from exhume.metrics.records import compare
from exhume.report.evidence import _with_exact_rows
from exhume.requests.audit import AuditRequest
from published_files import fitted, save_onnx, save_skops

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
        ("a.csv", ",a,b\n0,1,2\n", "pandas writes its index there; write the table with index=False"),
        ("a.csv", "a;b\n1,5;2\n", "found semicolons; write it with commas"),
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


def test_the_index_of_pandas_is_no_column() -> None:
    """As pandas 3 writes it; its table of contents may lie as well."""
    kept = pa.table({"a": [1.0, 2.0], "pid": ["p1", "p2"], "b.c": [3, 4]})
    for told, names in ((["pid"], ["a", "b.c"]), ([{"kind": "range"}], ["a", "pid", "b.c"]), ([["x"], 3], None)):
        metadata = {b"pandas": json.dumps({"index_columns": told}).encode()}
        pq.write_table(kept.replace_schema_metadata(metadata), "a.parquet")
        found = [column.name for column in read_table(Path("a.parquet")).columns]
        assert found == (names or ["a", "pid", "b.c"])
    pq.write_table(kept.replace_schema_metadata({b"pandas": b"[1]"}), "a.parquet")
    assert len(read_table(Path("a.parquet")).columns) == 3
    every = json.dumps({"index_columns": ["a", "pid", "b.c"]}).encode()
    for told_wrong, words in ((b"{", "a whole Parquet file"), (every, "expected records")):
        pq.write_table(kept.replace_schema_metadata({b"pandas": told_wrong}), "a.parquet")
        with pytest.raises(ExhumeError, match=words):
            read_table(Path("a.parquet"))


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


@pytest.mark.usefixtures("shapes_unchecked")
def test_exact_rows_count_as_recovered_where_categories_were_scaled_too(exhume: Command) -> None:
    """The page must not say that none of the records is among them, and that all of them are exact."""
    write_csv(Path("train.csv"), records(8, 3))
    write_csv(Path("others.csv"), records(8, 4))
    whole = read_records(Path("train.csv"), how=TableOptions("ill", "standard-all"))
    assert whole.table is not None
    trained_on(whole.table, whole.labels)
    told = ("--initial", "before.safetensors", "--truth", "train.csv", "--control", "others.csv", "--label", "ill")
    for scaling, close in (("standard", False), ("standard-all", True)):
        done = exhume(
            *("audit", "after.safetensors", *told, "--scaling", scaling, "--budget", "60s", "--json", "--out", scaling)
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["verdict"], found["recovered"], found["exact_rows"]) == ("recovered", 8, 1.0)
        assert found["control"]["recovered"] == 0
        assert (found["worst_relative_error"] < 0.1) == close
        assert "None of 8" not in found["sentence"]
        assert ("every cell of its row exact" in Path(scaling, "report.html").read_text()) != close


def test_exact_rows_that_chance_would_make_do_not_count() -> None:
    dice = np.random.default_rng(0)
    for columns, many in ((3, False), (40, True)):
        names = [f"c{at}" for at in range(columns)]
        lines = [[str("no" if dice.integers(2) else "yes") for _ in names] for _ in range(20)]
        Path("a.csv").write_text("\n".join(",".join(line) for line in [names, *lines]))
        truth = read_records(Path("a.csv"))
        off = truth.inputs + 0.3  # too far, and the same categories
        own = compare(truth.inputs, off)
        exact, _ = _with_exact_rows(truth, off, own, None, None)
        assert not own.recovered.any()
        assert bool(exact.recovered.all()) == many
        both, control = _with_exact_rows(truth, off, own, compare(truth.inputs, off), truth.inputs)
        assert control is not None
        assert not both.recovered.any()
        assert not control.recovered.any()


def test_a_scaler_may_be_one_of_all_numbers_with_those_of_categories(tmp_path: Path) -> None:
    write_csv(Path("a.csv"), records(9, 0))
    table, _ = read_table(Path("a.csv")).without("ill")
    plain = table.rows().double().numpy()
    scaler = fitted(StandardScaler(), plain, None)
    path = save_skops(scaler, tmp_path / "scaler.skops")
    for how in (str(path), "standard-all"):
        np.testing.assert_allclose(scale(table, how).rows(), scaler.transform(plain), atol=1e-5)
        assert scale(table, how).back(scale(table, how).rows()[4]) == table.record(4)
    told = {column.name: [0, 1] for column in table.columns} | {"city": [[0.5, 2], [0, 1], [0, 1]]}
    Path("s.json").write_text(json.dumps(told))
    made = scale(table, "s.json").rows().double().numpy()
    np.testing.assert_allclose(made[:, 2], (plain[:, 2] - 0.5) / 2, atol=1e-6)
    assert np.array_equal(np.delete(made, 2, axis=1), np.delete(plain, 2, axis=1))
    with pytest.raises(UsageError, match="each of 22 columns of numbers, or for each of 25 numbers"):
        table.scaled([0.0] * 7, [1.0] * 7)


def test_columns_are_what_their_owner_says_in_this_order() -> None:
    """As a ColumnTransformer makes them: numbers first, a code and its first category dropped, an ordinal."""
    lines: list[list[Any]] = [
        [7, "b", 3, 1.5, "low"],
        [10, "a", 2, 2.5, "high"],
        [7, "c", 1, 0.5, "low"],
        [9, "b", 9, 1.0, "high"],
    ]
    Path("a.csv").write_text(
        "\n".join(",".join(map(str, line)) for line in [["ward", "kind", "id", "dose", "risk"], *lines])
    )
    told = {"dose": "number", "ward": "drop-first", "kind": "one-hot", "risk": ["low", "high"]}
    Path("c.json").write_text(json.dumps(told))
    truth = read_records(Path("a.csv"), how=TableOptions(columns=Path("c.json")))
    own = ColumnTransformer(
        [
            ("n", "passthrough", [3]),
            ("w", OneHotEncoder(drop="first"), [0]),
            ("k", OneHotEncoder(), [1]),
            ("r", OrdinalEncoder(categories=[["low", "high"]]), [4]),
        ],
        sparse_threshold=0,
    )
    np.testing.assert_allclose(truth.inputs, own.fit_transform(np.array(lines, object)).astype(float))
    assert truth.table is not None
    assert [truth.table.back(row + 0.2) for row in truth.inputs] == [
        (round(line[3] + 0.2, 1), str(line[0]), line[1], line[4]) for line in lines
    ]
    control = read_records(Path("a.csv"), how=TableOptions(columns=Path("c.json")), like=truth)
    assert torch.equal(control.inputs, truth.inputs)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"nope": "number"}, "columns of the table in c.json \\(a, b\\), found 'nope'"),
        ({}, "expected columns of the table"),
        ({"b": "number"}, "expected numbers in the column 'b'"),
        ({"a": "hot"}, "expected number, one-hot, drop-first, ordinal or a list"),
        ({"b": ["x"]}, "expected every category of 'b' once in c.json, found no 'y'"),
    ],
)
def test_columns_that_do_not_fit_are_one_line(told: dict[str, object], words: str) -> None:
    Path("a.csv").write_text("a,b\n1,x\n2,y\n")
    Path("c.json").write_text(json.dumps(told))
    with pytest.raises(ExhumeError, match=words):
        read_records(Path("a.csv"), how=TableOptions(columns=Path("c.json")))


def test_a_forgotten_label_is_one_line_that_asks_for_it() -> None:
    write_csv(Path("train.csv"), records(8, 3))
    truth = read_records(Path("train.csv"), how=TableOptions("ill"))
    assert truth.table is not None
    trained_on(truth.table, truth.labels)
    asked = AuditRequest(weights=Path("after.safetensors"), truth="train.csv", out=Path("o"))
    with pytest.raises(UsageError, match="expected 25 columns as the network reads, found 26: which one is the label"):
        read_question(asked)


@pytest.mark.parametrize("kind", ["skops", "onnx"])
def test_the_scaler_of_a_file_is_applied_as_rank_does(kind: str, tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    x, y = dice.normal(size=(30, 5)) * [1, 10, 100, 1, 1] + 3, np.arange(30) % 2
    model = fitted(make_pipeline(StandardScaler(), MLPClassifier((40,), max_iter=20, random_state=0)), x, y)
    path = tmp_path / f"a.{kind}"
    path = save_skops(model, path) if kind == "skops" else save_onnx(model, path, columns=5)
    np.save("x.npy", x)
    Path("x.csv").write_text("\n".join(",".join(map(str, line)) for line in [list("abcde"), *x.tolist()]))
    scaled = model[0].transform(x)
    for name in ("x.npy", "x.csv"):
        asked = AuditRequest(weights=path, truth=name, control=name, out=Path("o"))
        question = read_question(asked)
        assert question.truth is not None
        assert question.control is not None
        for rows in (question.truth.inputs, question.control.inputs):
            np.testing.assert_allclose(rows, scaled, atol=1e-4)
        assert "went through its scaler" in question.target.notes[-1]
        if name == "x.csv":
            assert question.truth.table is not None
            assert question.truth.table.back(question.truth.inputs[2])[1] == pytest.approx(x[2, 1], abs=1e-4)
        as_they_are = read_question(asked.model_copy(update={"scaling": "none"}))
        assert as_they_are.truth is not None
        np.testing.assert_allclose(as_they_are.truth.inputs, x, rtol=1e-6)
        assert "compared as they are after that" in as_they_are.target.notes[-1]
