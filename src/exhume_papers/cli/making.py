"""A run folder made from a request: trained with a bar, and told about."""

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from exhume.cli.output import print_json, say
from exhume_papers.cli.bars import training_bar
from exhume_papers.making.victim_request import VictimRequest

if TYPE_CHECKING:
    pass


def make_run(request: VictimRequest, json: bool) -> None:
    """Trains with a bar and tells how it went."""
    from exhume.data.load import load
    from exhume.experiments.run import check_new
    from exhume_papers.making.training_run import train_run
    from exhume_papers.victims.recipe import TrainingStopped

    assert request.out is not None, "the command line asks for it"
    check_new(request.out)
    data_config = request.data_config()
    data = load(data_config)
    config = request.config(data)
    say(data.description, json)
    train = partial(
        train_run, request.out, data_config, config, data, defence=request.defences(), request=request.kept()
    )
    way = config.way()
    if way is None:
        summary = train()
    else:
        try:
            with training_bar(*way) as show:
                summary = train(progress=show)
        except TrainingStopped as stopped:
            say(f"{stopped}; the same command continues", as_json=True)
            raise typer.Exit(130) from None
    tell_training(summary, json)
    model = request.own_code()
    say(f"wrote {request.out}; next: exhume attack {request.out}{f' --model {model}' if model else ''}", json)
    if json:
        print_json(summary)


def tell_training(summary: dict[str, Any], json: bool) -> None:
    how = summary.get("training") or f"training loss {summary['training_loss']:.2g}"
    parameters = "parameters" if summary["victim"] == "rf" else "weights of the head"
    say(
        f"trained {summary['p']:,} {parameters} on n = {summary['n']} samples of dimension d = {summary['d']} "
        f"(p/(dn) = {summary['ratio']:.3g}), {how}",
        json,
    )
    if summary.get("note"):
        say(summary["note"], json)
    if summary.get("privacy"):
        say(summary["privacy"], json)
    if summary.get("start_left") and summary["initial"] == "known":
        say(f"weight decay left {summary['start_left']:.4f} of the initial head, which is taken off", json)
    if summary["defence"]:
        say(f"published with {summary['defence']}", json)
    if summary["victim"] != "rf" or summary["defence"] or summary.get("privacy"):
        say(f"floor: the true data explain the weights up to a loss of {summary['floor']:.2g}", json)
