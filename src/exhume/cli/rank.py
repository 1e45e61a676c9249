"""`exhume rank`: which of your records a head was trained on."""

from typing import TYPE_CHECKING

from exhume.cli.output import print_json, say
from exhume.requests.rank import RankRequest

if TYPE_CHECKING:
    from exhume.experiments.ranking import RankedRecords


def rank(request: RankRequest, json: bool) -> None:
    """Rank records by how likely the head of RUN was trained on them, with p-values against non-members.

    Example: exhume rank runs/a --candidates photos --non-members others
    """
    from exhume.experiments.rank_request import answer
    from exhume.report.ranking import write_ranking

    done = answer(request)
    say_ranking(done.ranked, json)
    page = write_ranking(done, request)
    say(f"wrote {page}, ranking.csv and span.safetensors", json)
    if json:
        print_json(done.summary)


def say_ranking(ranked: "RankedRecords", json: bool) -> None:
    from exhume.attacks.probes.embedding_span import NOT_DETERMINED
    from exhume.experiments.ranking import CALLED, FEW_NON_MEMBERS

    summary, ranking = ranked.summary(), ranked.ranking
    whole = "" if ranked.samples is None else f" of at most {ranked.samples}"
    if "rank_exact" in summary and ranked.recovered is None:
        say(
            f"exact: the change shows all {ranking.span.rank} dimensions of the span of the training embeddings, and "
            f"{summary['rank_exact']} of {summary['ranked']} records lie in it to rounding",
            json,
        )
    elif "rank_exact" in summary:
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
    if ranking.explained is not None:
        say(
            f"rest: these records and their labels explain {ranking.explained:.0%} of what holds the weights in place",
            json,
        )
    if "rank_auc" in summary:
        rates = " and ".join(
            f"{summary[f'rank_tpr_at_{key}_percent']:.0%} ({low:.0%} to {high:.0%}) found at {key.replace('_', '.')} % "
            "false alarms"
            for key in ("1", "0_1")
            for low, high in [summary[f"rank_tpr_at_{key}_percent_interval"]]
        )
        say(
            f"truth: {summary['rank_members']} of them were trained on; AUC {summary['rank_auc']:.3f}, {rates} "
            f"(of {summary['rank_others']} others; 95 % intervals)",
            json,
        )
