from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from exhume.cli.option_groups import DataOptions, flattened
from exhume_papers.cli.training_options import TrainingOptions


@dataclass(frozen=True)
class Shape:
    height: Annotated[int, typer.Option(help="Up.")]
    width: Annotated[int, typer.Option(help="Across.")] = 3
    is_round: Annotated[bool, typer.Option("--round")] = False


def program() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @flattened
    def draw(name: str, shape: Shape, times: Annotated[int, typer.Option()] = 1) -> None:
        """Draws."""
        print(name, shape, times)

    return app


def test_the_fields_of_a_group_are_options_of_the_command() -> None:
    done = CliRunner().invoke(program(), ["box", "--height", "2", "--round", "--times", "4"])
    assert done.output == "box Shape(height=2, width=3, is_round=True) 4\n"
    shown = CliRunner().invoke(program(), ["--help"]).output
    assert all(words in shown for words in ("Draws.", "--height", "Up.", "--width", "--round", "--times"))


@pytest.mark.parametrize("arguments", [["box"], ["box", "--height", "tall"], ["box", "--height", "1", "--shape", "2"]])
def test_options_of_a_group_are_checked_like_others(arguments: list[str]) -> None:
    assert CliRunner().invoke(program(), arguments).exit_code == 2


def test_data_options_load_the_data_that_they_name() -> None:
    loaded = DataOptions(data="sphere", samples=4, dim=7, dtype="float64").load(3)
    assert (loaded.n, loaded.d) == (4, 7)
    assert loaded.config.samples == 4
    assert loaded.dataset.inputs.dtype.itemsize == 8
    assert loaded.config.seed != 3, "the seed of the command is not the seed of the data"


def test_training_options_become_the_fields_that_networks_share() -> None:
    fields = TrainingOptions(initial="zero", momentum=0.5, steps=7).fields(9)
    assert (fields["zero_head"], fields["initial"], fields["seed"]) == (True, "zero", 9)
    assert (fields["recipe"].momentum, fields["recipe"].steps, fields["recipe"].seed) == (0.5, 7, 9)
