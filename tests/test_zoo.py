"""The zoo's own measure and its runner: a fault here would hide what audits get wrong."""

import ast
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from zoo import running
from zoo.auditing import Result, audited, sentences_of
from zoo.core_time import budgets_of_a_core
from zoo.facts import Facts, at, change_of, facts_of, left_over, seen_by, spectrum_of, spectrum_of_layer
from zoo.page import spread, verdicts_table
from zoo.registry import VICTIMS
from zoo.rows import Row, load, made, measured, path_of, save
from zoo.scoring import Score, relative, score
from zoo.sentences import false_sentences
from zoo.victim import SHARED, Victim

import exhume
from exhume.alarm import OutOfTime, given_up_at
from exhume.report.verdict import OPEN

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALL = ("diabetes-few", "texts-linear-head")


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


RECORDS = rows([10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0])
CONTROL = rows([6.0, 6.0, 0.0], [0.0, 6.0, 6.0])


def test_two_victims_go_from_training_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--only", ",".join(SMALL), "--workers", "0", "--budget", "2", "--out", str(tmp_path)]
    running.run([*asked, "--page", str(tmp_path / "page.md")], BENCHMARKS / "zoo.py", "")
    made = [load(path_of(tmp_path, name, 0)) for name in SMALL]
    assert [row.victim for row in made] == list(SMALL)
    assert all(row.with_records is not None and row.with_records.error is None for row in made)
    assert made[0].facts.rank == made[0].n == 8  # plain descent on eight rows, whatever an attack makes of it
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert verdicts_table(made, records=True) in text
    assert verdicts_table(made, records=False) in text
    assert len((tmp_path / "zoo.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in SMALL)


def test_one_command_gives_every_victim_the_budget_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, float] = {}
    _, row = measured(VICTIMS["diabetes-few"], 0, SHARED)

    def noted(victim: Victim, seed: int, budget: float, data: Path) -> Row:
        asked[victim.name] = budget
        return replace(row, victim=victim.name, budget=budget, with_records=INFORMED, without_records=BLIND)

    monkeypatch.setattr(running, "made", noted)
    page = tmp_path / "page.md"
    names = ["--only", "diabetes-few,cancer-sgd", "--workers", "0"]
    running.run([*names, "--out", str(tmp_path / "a"), "--page", str(page)], BENCHMARKS / "zoo.py", "")
    assert asked == {"diabetes-few": 15.0, "cancer-sgd": 300.0}
    told = page.read_text(encoding="utf-8")
    assert "15 s of one core for all attacks together (300 s for cancer-sgd)" in told
    command = next(line for line in told.splitlines() if "benchmarks/zoo.py" in line)
    assert "--budget" not in command
    assert "--budget" not in (BENCHMARKS.parent / "Makefile").read_text(encoding="utf-8")
    running.run([*names, "--out", str(tmp_path / "b"), "--budget", "5"], BENCHMARKS / "zoo.py", "")
    assert asked == {"diabetes-few": 5.0, "cancer-sgd": 5.0}


def test_the_recipe_in_numbers_is_passed_with_n(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def noted(*_: object, **options: object) -> None:
        given.update(options)
        raise ValueError("seen")

    monkeypatch.setattr(exhume, "audit", noted)
    trained = VICTIMS["digits-adam"].train()
    audited(trained, 1.0, 0, with_records=True)
    assert given["samples"] == 20
    labels = tuple(trained.records.labels.tolist())
    assert given["training"] == exhume.Recipe(optimiser="adam", rate=1e-3, steps=50, labels=labels)


def test_rows_that_are_there_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["--only", SMALL[1], "--workers", "0", "--budget", "2", "--out", str(tmp_path)]
    running.run(asked, BENCHMARKS / "zoo.py", "")
    monkeypatch.setattr(running, "made", lambda *_: pytest.fail("made again"))
    running.run(asked, BENCHMARKS / "zoo.py", "")


def test_an_audit_that_raises_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(exhume, "audit", broken)
    told = audited(VICTIMS["diabetes-few"].train(), 1.0, 0, with_records=True)
    assert told.error == "ZeroDivisionError: by zero"


def test_victims_import_nothing_from_exhume() -> None:
    checked, found = set(), ["zoo.registry"]
    while found:
        name = found.pop()
        checked.add(name)
        tree = ast.parse((BENCHMARKS / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                whole = [f"zoo.{alias.name}" for alias in node.names] if node.module == "zoo" else []
                names = [node.module or "", *whole]
            assert not any(other.startswith("exhume") for other in names), name
            found += [other for other in names if other.startswith("zoo.") and other not in checked]
    assert "zoo.picture_victims" in checked
    assert len(VICTIMS) >= 24


def test_the_same_seed_trains_the_same_victim() -> None:
    first, again, other = (VICTIMS["diabetes-few"].train(seed) for seed in (3, 3, 4))
    assert torch.equal(first.model.state_dict()["0.weight"], again.model.state_dict()["0.weight"])
    assert not torch.equal(first.records.inputs, other.records.inputs)
    assert not set(map(tuple, first.records.inputs.tolist())) & set(map(tuple, first.control.inputs.tolist()))


def test_records_are_counted_once_and_by_their_own_norm() -> None:
    candidates = torch.stack([RECORDS[0] * 1.05, RECORDS[0] * 1.01, RECORDS[1] * 0.8])
    told = score(candidates, (0.9, 0.4, 0.7), RECORDS, CONTROL)
    assert (told.recovered, told.candidates, told.calls, told.wrong_calls, told.control) == (1, 3, 2, 1, 0)
    assert told.median == pytest.approx(0.2)
    assert told.worst == 1.0


def test_what_is_no_closer_than_a_control_record_is_not_recovered() -> None:
    near = RECORDS[:1] + rows([0.1, 0.0, 0.0])
    told = score(RECORDS[:1] + rows([0.2, 0.0, 0.0]), (1.0,), RECORDS[:1], near)
    assert told.recovered == 0


def test_a_control_record_that_came_back_is_counted() -> None:
    assert score(CONTROL[:1], (), RECORDS, CONTROL).control == 1


def test_inputs_that_training_saw_besides_are_no_wrong_calls() -> None:
    assert score(-RECORDS[:1], (1.0,), RECORDS, CONTROL).wrong_calls == 1
    assert score(-RECORDS[:1], (1.0,), RECORDS, CONTROL, also=-RECORDS).wrong_calls == 0


def test_relative_distances_are_those_of_single_pairs() -> None:
    stream = torch.Generator().manual_seed(0)
    some, others = (torch.randn(count, 5, generator=stream, dtype=torch.float64) for count in (3, 4))
    naive = [[float((x - y).norm() / x.norm()) for y in others] for x in some]
    assert torch.allclose(relative(some, others), torch.tensor(naive, dtype=torch.float64))


def test_pictures_that_a_person_knows() -> None:
    stream = torch.Generator().manual_seed(0)
    pictures, others = (torch.rand(2, 1, 12, 12, generator=stream) for _ in range(2))
    told = score(torch.stack([pictures[0], others[0]]).flatten(1), (), pictures, others)
    assert told.recognised == 1


def test_ranks_are_found_in_the_whole_spectrum_with_dead_columns_aside() -> None:
    stream = torch.Generator().manual_seed(0)
    thin = torch.randn(40, 6, generator=stream, dtype=torch.float64)
    change = thin @ torch.randn(6, 30, generator=stream, dtype=torch.float64)
    change += 1e-6 * torch.randn(40, 30, generator=stream, dtype=torch.float64)
    change[:, 7:15] = 0.0
    found = spectrum_of(change)
    assert (found.rank, found.dead) == (6, 8)
    assert spectrum_of(torch.randn(40, 30, generator=stream, dtype=torch.float64)).rank is None


def test_weight_decay_is_taken_off_before_a_rank_is_told() -> None:
    decayed = spectrum_of_layer(VICTIMS["digits-weight-decay"].train(), "0")
    assert (decayed.rank, decayed.gap > 1e3) == (20, True)
    assert spectrum_of_layer(VICTIMS["digits-adam"].train(), "0").rank is None


def test_the_floor_is_what_least_squares_leaves() -> None:
    stream = torch.Generator().manual_seed(0)
    features, change = (torch.randn(count, 9, generator=stream, dtype=torch.float64) for count in (4, 2))
    best = torch.linalg.lstsq(features.T, change.T).solution
    naive = float((change.T - features.T @ best).square().sum() / change.square().sum())
    assert left_over(change, features) == pytest.approx(naive)
    assert left_over(torch.ones(2, 4, dtype=torch.float64) @ features, features) == pytest.approx(0.0, abs=1e-20)
    assert left_over(change, torch.cat([features, features, features])) is None  # they explain anything


def test_facts_leave_the_victim_as_it_is() -> None:
    trained = VICTIMS["diabetes-few"].train()
    before = {name: value.clone() for name, value in trained.model.state_dict().items()}
    facts_of(trained)
    after = trained.model.state_dict()
    assert all(torch.equal(value, after[name]) and value.dtype == after[name].dtype for name, value in before.items())


def test_what_a_layer_reads_and_how_it_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    inputs = torch.ones(2, 3)
    assert torch.allclose(seen_by(model, "2", inputs)[:, :-1].float(), model[1](model[0](inputs)))
    assert torch.allclose(change_of(model, state, "2")[:, :-1].float(), model.state_dict()["2.weight"])
    assert float(seen_by(at(model, state), "2", inputs)[:, :-1].abs().max()) == 0.0


FACTS = Facts(8, 10, "Linear [256, 10]", 8, 2.8e4, 0, 0.5, 0.07, 0.12, 257, 3.2, 0.13)
NOTHING = Score(0, 1.0, 1.0, 0, 4, 0, 0, None)
INFORMED = Result(
    1.0, verdict="recovered", severity=3, sentence="Recovered: 8 of 8 training samples can be read from the weights.",
    score=Score(8, 1e-6, 1e-5, 0, 8, 8, 0, None), page=["it spans only 8 of 10 dimensions"],
)  # fmt: skip
BLIND = replace(
    INFORMED, sentence="Recovered: 8 training samples can be read from the weights. Unused weights confirm it."
)
SILENT = {"method": "silent-units", "outcome": "recovered"}
DENIED = "Not recovered by these attacks: what it found is not the training data."


@pytest.mark.parametrize(
    ("informed", "blind", "why"),
    [
        (INFORMED, BLIND, []),
        (replace(INFORMED, score=replace(NOTHING, recovered=7)), BLIND, ["7 are within"]),
        (INFORMED, replace(BLIND, score=replace(NOTHING, recovered=8, calls=8, wrong_calls=2)), ["2 of 8 calls"]),
        (INFORMED, replace(BLIND, sentence=DENIED), ["8 records are among"]),
        (INFORMED, replace(BLIND, sentence="so part of it is exposed.", score=NOTHING), ["no candidate is within"]),
        (replace(INFORMED, page=["it spans only 357 of 784 dimensions"]), BLIND, ["its rank is 8"]),
        (replace(INFORMED, page=["a largest gap of only 4.5 in its spectrum"]), BLIND, ["the largest gap is"]),
        (
            replace(INFORMED, page=["The features of these records are what they were at the known start."]),
            BLIND,
            ["those of the records moved"],
        ),
        (
            replace(INFORMED, page=["The features moved by 0.05 of their size since the known start: little."]),
            BLIND,
            ["those of"],
        ),
        (
            replace(
                INFORMED,
                page=["The features of random inputs moved by 0.05 of their size since the known start."],
            ),
            BLIND,
            [],
        ),
        (
            replace(
                INFORMED,
                page=["The features of these records moved by 0.05 of their size since the known start."],
            ),
            BLIND,
            ["those of"],
        ),
        (replace(INFORMED, page=["A last layer of p = 514 parameters can hold at most p / d = 51."]), BLIND, []),
        (replace(INFORMED, page=["A last layer of p = 514 parameters can hold p / d = 51."]), BLIND, ["outputs that"]),
        (
            replace(INFORMED, page=["The head: a change. Attacked here by silent-units."], attempts=[SILENT]),
            BLIND,
            ["silent-units reads no head"],
        ),
        (
            replace(INFORMED, page=["A change. Attacked here by silent-units and ntk."], attempts=[SILENT]),
            BLIND,
            ["ntk did not run"],
        ),
        (INFORMED, replace(BLIND, page=["it spans only 357 of 784 dimensions"]), ["its rank is 8"]),
        (replace(INFORMED, severity=0), BLIND, ["the gate is laxer"]),
    ],
)
def test_sentences_that_are_not_so_are_found(informed: Result, blind: Result, why: list[str]) -> None:
    told = false_sentences(informed, blind, FACTS)
    assert len(told) == len(why)
    assert all(line["why"].startswith(start) for line, start in zip(told, why, strict=True))


def test_each_verdict_is_one_line_with_its_victims_the_worst_first_and_reasons_apart() -> None:
    def row(victim: str, verdict: str, severity: int, sentence: str) -> Row:
        result = Result(1.0, verdict=verdict, severity=severity, sentence=sentence)
        return Row(victim, 0, "", "", 8, 15.0, 1.0, 0.1, FACTS, result, result)

    def open_(victim: str, reason: str) -> Row:
        return row(victim, "inconclusive", 1, f"Inconclusive: {OPEN}. {reason}")

    told = verdicts_table(
        [
            open_("a", "The attack was stopped before its end."),
            open_("b", "26 % of the weights is no combination of these records' features. Either other records."),
            row("c", "recovered", 3, "Recovered: 8 of 8 training samples can be read from the weights."),
            open_("d", "13.7 % of the weights is no combination of these records' features. Either other records."),
            row("e", "recovered", 3, "Recovered: 20 of 20 training samples can be read from the weights."),
        ],
        records=True,
    )
    assert told.splitlines() == [
        "| verdict | models | which |",
        "| --- | --- | --- |",
        "| recovered | 2 | c, e |",
        "| inconclusive: a part of the weights is no combination of these records' features | 2 | b, d |",
        "| inconclusive: the attack was stopped before its end | 1 | a |",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-weight-decay", "digits-dropout", "cifar-flips", "cancer-sgd", "wine-adam"])
def test_no_audit_of_the_zoo_says_what_is_not_so(name: str, tmp_path: Path) -> None:
    """The kinds that were false: decay that was missed, recipes that break other attacks, ranks, features, floors."""
    if name.startswith("cifar") and not (SHARED / "cifar-10-batches-bin").is_dir():
        pytest.skip("needs the real CIFAR-10")
    row = made(VICTIMS[name], 0, 3.0, SHARED)
    assert row.with_records is not None
    assert row.with_records.error is None
    assert row.with_records.page
    assert row.false == []


def test_false_sentences_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, row = measured(VICTIMS["diabetes-few"], 0, SHARED)
    save(replace(row, with_records=INFORMED, without_records=replace(BLIND, sentence=DENIED)), tmp_path)
    running.run(["--only", "diabetes-few", "--out", str(tmp_path)], BENCHMARKS / "zoo.py", "")
    assert f"| diabetes-few | without records | {DENIED} | 8 records are among" in capsys.readouterr().out


def test_prose_is_found_wherever_it_is() -> None:
    content = {"verdict": {"sentence": "one two three four."}, "rows": [{"why": "five six seven eight."}], "n": 3}
    assert sentences_of(content) == ["one two three four.", "five six seven eight."]


def test_several_seeds_are_one_line() -> None:
    assert [spread(values, "{:.0f}".format) for values in ([3.0], [3.0, 5.0, 4.0], [])] == ["3", "3 to 5", "-"]


def test_the_page_of_the_documentation_speaks_of_these_victims() -> None:
    told = (BENCHMARKS.parent / "docs" / "real-models.md").read_text(encoding="utf-8")
    tables = [part for part in told.split("\n\n") if part.startswith("| victim |")]
    names = [line.split(" | ")[0].removeprefix("| ") for part in tables for line in part.splitlines()]
    assert set(names) - {"victim", "---"} <= set(VICTIMS)
    assert "digits-sgd" in names


def busy_for_ever() -> None:
    while True:
        pass


def test_the_budget_of_an_audit_is_time_of_a_core() -> None:
    """An attack that waits uses none of it; one that works is ended, in the midst of what it does."""
    began, other = time.process_time(), time.monotonic
    with budgets_of_a_core():
        time.sleep(0.3)
        assert time.monotonic() - began < 0.2
        with pytest.raises(OutOfTime), given_up_at(time.monotonic() + 0.1):
            busy_for_ever()
        assert 0.1 <= time.monotonic() - began < 2.0
    assert time.monotonic is other
