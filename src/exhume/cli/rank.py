"""`exhume rank`: which of your records a head was trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.cli.options import JsonOption, ModelOption, SeedOption
from exhume.cli.output import print_json, say

if TYPE_CHECKING:
    from exhume.experiments.ranking import RankedRecords


def rank(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run folder, or a safetensors file with a head (weight, bias).")
    ],
    candidates: Annotated[
        Path, typer.Option(metavar="DATA", help="Records to rank: a folder of images, or inputs or embeddings.")
    ],
    non_members: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Records of the same kind that were not trained on.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="square, logistic, cross-entropy or none; default: what the run says.")
    ] = None,
    initial: Annotated[Path | None, typer.Option(help="Head file: W(0); default: it started at zero.")] = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Head file: a hidden layer with ReLU; its embeddings are recovered first.")
    ] = False,
    mean: Annotated[
        str | None,
        typer.Option(help="Images: the model's mean, e.g. 0.5 or one a channel; default: what the run tells."),
    ] = None,
    std: Annotated[str | None, typer.Option(help="Images: its standard deviation.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for ranking.csv; default: the run folder.")] = None,
    model: ModelOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Rank records by how likely the head of RUN was trained on them, with p-values against non-members.

    Example: exhume rank runs/a --candidates photos --non-members others
    """
    from exhume.experiments.rank_request import RankRequest, answer

    done = answer(RankRequest(run, candidates, non_members, loss, initial, hidden, mean, std, out, model, seed))
    tell_ranking(done.ranked, json)
    say(f"wrote {done.folder / 'ranking.csv'} and span.safetensors", json)
    if json:
        print_json(done.summary)


def tell_ranking(ranked: "RankedRecords", json: bool) -> None:
    from exhume.attacks.probes.embedding_span import NOT_DETERMINED
    from exhume.experiments.ranking import CALLED, FEW_NON_MEMBERS

    summary, ranking = ranked.summary(), ranked.ranking
    whole = "" if ranked.samples is None else f" of at most {ranked.samples}"
    if "rank_exact" in summary:
        say(
            f"exact: {summary['rank_recovered']} training embeddings were recovered, and {summary['rank_exact']} of "
            f"{summary['ranked']} records are among them",
            json,
        )
    else:
        say(
            f"span: the change of the head shows {ranking.span.rank}{whole} dimensions of the span of the training "
            f"embeddings; {NOT_DETERMINED}",
            json,
        )
    count = len(ranking.non_member_score)
    if ranking.resolution is None:
        say(f"ranked {summary['ranked']} records by score alone: p-values need --non-members", json)
    else:
        few = "; more of them would resolve more" if count < FEW_NON_MEMBERS else ""
        say(
            f"ranked {summary['ranked']} records against {count} non-members: {summary['rank_called']} with "
            f"q <= {CALLED:g}; no p-value can be below {ranking.resolution:.2g}{few}",
            json,
        )
    if "rank_auc" in summary:
        say(
            f"truth: {summary['rank_members']} of them were trained on; AUC {summary['rank_auc']:.3f}, "
            f"{summary['rank_tpr_at_1_percent']:.0%} found at 1 % false alarms",
            json,
        )
