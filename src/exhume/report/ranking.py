"""The page of `exhume rank`: the top of the ranking, the headline rates, how sure they are, and what to do."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exhume.attacks.probes.ranking import CALLED
from exhume.experiments.rank_request import RankDone
from exhume.experiments.ranking import FALSE_ALARMS
from exhume.files import write_text
from exhume.report.page import render_without_script
from exhume.requests.command_line import shown_line
from exhume.requests.rank import RankRequest
from exhume.version import VERSION

PAGE = "ranking.html"
MOST_SHOWN = 20
REMEDY = (
    "Whoever has the head and a record can ask the same. Keep the head private, or train it with differential privacy: "
    "only a small ε is a promise. Rank again after any other change."
)
NO_CHANCE = (
    "Scores say only which record fits better than another. Give --non-members: then each record gets a p-value."
)


def write_ranking(done: RankDone, request: RankRequest) -> Path:
    """Beside ranking.csv. It names records, as the table does."""
    path = done.folder / PAGE
    write_text(path, render_without_script("ranking.html.jinja", describe_ranking(done, request)))
    return path


def describe_ranking(done: RankDone, request: RankRequest) -> dict[str, Any]:
    ranked, summary = done.ranked, done.ranked.summary()
    ranking = ranked.ranking
    return {
        "name": request.run.name,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "ranked": len(ranked.names),
        "sentence": _sentence(ranked.called, summary),
        "rates": [_rate(summary, key) for key in FALSE_ALARMS] if "rank_auc" in summary else [],
        "members": summary.get("rank_members"),
        "others": summary.get("rank_others"),
        "auc": f"{summary['rank_auc']:.3f}" if "rank_auc" in summary else None,
        "top": [
            {
                "name": ranked.names[at],
                "score": f"{float(ranking.score[at]):.4g}",
                "p": "" if ranking.p_value is None else f"{float(ranking.p_value[at]):.2g}",
                "q": "" if ranking.q_value is None else f"{float(ranking.q_value[at]):.2g}",
                "member": "" if ranked.members is None else "yes" if bool(ranked.members[at]) else "no",
            }
            for at in ranking.order[:MOST_SHOWN]
        ],
        "confidence": NO_CHANCE
        if ranking.resolution is None
        else f"Scores are held against {len(ranking.non_member_score)} non-members: no p-value can be below "
        f"{ranking.resolution:.2g}. Of the records with q up to {CALLED:g} one in ten may be a false alarm.",
        "note": summary["rank_note"],
        "remedy": REMEDY,
        "command": shown_line(request),
        "exhume": VERSION,
    }


def _sentence(called: int | None, summary: dict[str, Any]) -> str:
    if "rank_auc" in summary:
        rate, (low, high) = summary["rank_tpr_at_1_percent"], summary["rank_tpr_at_1_percent_interval"]
        return f"{rate:.0%} of the members ({low:.0%} to {high:.0%}) are found at 1 % false alarms."
    if summary.get("rank_exact"):
        return f"{summary['rank_exact']} of {summary['ranked']} records fit exactly, to rounding."
    if called is None:
        return f"{summary['ranked']} records in order of how well they fit. Nobody said what chance is."
    return f"{called} of {summary['ranked']} records stand out from the non-members (q up to {CALLED:g})."


def _rate(summary: dict[str, Any], key: str) -> dict[str, str]:
    low, high = summary[f"rank_tpr_at_{key}_percent_interval"]
    return {
        "alarms": f"{key.replace('_', '.')} %",
        "found": f"{summary[f'rank_tpr_at_{key}_percent']:.0%}",
        "low": f"{low:.0%}",
        "high": f"{high:.0%}",
    }
