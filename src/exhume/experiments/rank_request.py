"""The answer to `exhume rank`: records, read and prepared, against a run or against a head alone."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from exhume.attacks.probes.exact_matches import Recovered
from exhume.attacks.probes.ranking import Probe
from exhume.attacks.probes.residuals import HeadLoss
from exhume.attacks.running.loop import run_attack
from exhume.attacks.silent.attack import SilentUnits
from exhume.data.dataset import Preparation
from exhume.data.records import Records, load_records
from exhume.errors import UsageError
from exhume.experiments.adapted_layer import layer_of
from exhume.experiments.head_file import HeadFile, read_head_file, read_hidden
from exhume.experiments.preparations import preparation_of
from exhume.experiments.ranking import RankedRecords, rank_against
from exhume.experiments.run import RunFolder
from exhume.formats.adapter import is_adapter, read_adapter
from exhume.metrics.detection import rows_among
from exhume.observing.of_layer import observe_layer
from exhume.requests.rank import RankRequest

SAME = 1e-5
"""A row of two files, one of which may have single precision."""
RANK_KEYS = (
    "rank_members",
    "rank_others",
    "rank_auc",
    "rank_tpr_at_1_percent",
    "rank_tpr_at_1_percent_interval",
    "rank_tpr_at_0_1_percent",
    "rank_tpr_at_0_1_percent_interval",
)


@dataclass(frozen=True, eq=False)
class RankDone:
    ranked: RankedRecords
    summary: dict[str, Any]
    folder: Path


def answer(request: RankRequest) -> RankDone:
    if is_adapter(request.run):
        return _rank_adapter(request)
    if request.layer is not None:
        raise UsageError(f"expected --layer with a PEFT adapter, found it with {request.run}")
    return _rank_run(request) if request.run.is_dir() else _rank_head(request)


def _rank_run(request: RankRequest) -> RankDone:
    """Ranks against the head of a run, and writes into its folder (or `out`)."""
    if request.hidden:
        raise UsageError("expected a file with the weight and bias of a hidden layer with --hidden, found a run folder")
    if request.initial is not None:
        raise UsageError("expected no --initial with a run folder, whose observation knows it, found one")
    run = RunFolder.existing(request.run)
    observation = run.observation(request.model)
    truth = run.truth() if run.has_truth() else None
    preparation = _preparation(request, observation.image_shape, run.config())
    candidates, others = _load(request, observation.image_shape, preparation)
    members = candidates.members
    if members is None and truth is not None and candidates.rows.shape[1] == truth.inputs.shape[1]:
        members = rows_among(candidates.rows.to(truth.inputs.dtype), truth.inputs)
    loss = request.loss if request.loss is not None else run.summary().get("loss_function", "none")
    ranked = rank_against(
        Probe.of(observation),
        candidates,
        others,
        members=members,
        loss=_loss(loss),
        samples=observation.knowledge.samples,
        seed=request.seed,
    )
    folder = run.path if request.out is None else request.out
    ranked.save(folder)
    return RankDone(ranked, run.update_summary(ranked.summary(), drop=RANK_KEYS), folder)


def _rank_head(request: RankRequest) -> RankDone:
    """Ranks embeddings against a head that is in a file by itself."""
    if not request.run.is_file():
        raise UsageError(
            "expected a run folder or a .safetensors file with a head, a .pt, .keras, .skops or .onnx file, found no "
            f"{request.run}"
        )
    if request.model is not None:
        raise UsageError(f"expected no --model with a head file, found {request.model!r}; its records are embeddings")
    if request.out is None:
        raise UsageError("expected --out, a folder for ranking.csv, because a head file has none, found nothing")
    head = read_head_file(request.run, request.initial)
    candidates, others = _load(request, None, None, head)
    loss = _loss(request.loss or head.loss or "none")
    recovered = _recovered(request) if request.hidden else None
    ranked = rank_against(
        head.probe, candidates, others, members=candidates.members, loss=loss, seed=request.seed, recovered=recovered
    )
    ranked.save(request.out)
    return RankDone(ranked, ranked.summary(), request.out)


def _rank_adapter(request: RankRequest) -> RankDone:
    """Ranks what a layer of an adapter reads: inputs of the first layer, features of any other."""
    if request.model is not None or request.initial is not None or request.hidden:
        raise UsageError("expected no --model, --initial or --hidden with a PEFT adapter, found one of them")
    if request.out is None:
        raise UsageError("expected --out, a folder for ranking.csv, with a PEFT adapter, found nothing")
    candidates, others = _load(request, None, None)
    layer = layer_of(read_adapter(request.run), request.layer, candidates.rows.shape[1], request.run)
    records = [None if part is None else layer.read(part) for part in (candidates, others)]
    assert records[0] is not None
    loss = _loss(request.loss or "none") if layer.whole else None
    ranked = rank_against(layer.probe, records[0], records[1], members=candidates.members, loss=loss, seed=request.seed)
    ranked.save(request.out)
    return RankDone(ranked, ranked.summary() | {"rank_layer": layer.name}, request.out)


def _recovered(request: RankRequest) -> Recovered:
    observation = observe_layer(read_hidden(request.run, request.initial))
    return Recovered.of(run_attack(observation, SilentUnits(), seed=request.seed).reconstruction)


def _load(
    request: RankRequest,
    image_shape: tuple[int, int, int] | None,
    preparation: Preparation | None,
    head: HeadFile | None = None,
) -> tuple[Records, Records | None]:
    """The candidates, and the non-members where there are any, as the head reads them."""

    column = request.members if request.members is not None and not Path(request.members).exists() else None

    def ready(path: Path, what: str, members: str | None = None) -> Records:
        found = load_records(path, image_shape, preparation, request.label, members)
        return found.labelled(None, what) if head is None else head.prepared(found, what)

    others = None if request.non_members is None else ready(request.non_members, "the non-members")
    candidates = ready(request.candidates, "the candidates", column)
    if request.members is not None and column is None:
        known = ready(Path(request.members), "the members")
        candidates = replace(candidates, members=_among(candidates, known, request))
    return candidates, others


def _among(candidates: Records, known: Records, request: RankRequest) -> Tensor:
    """Which candidates are the known members; each of these has to be there."""
    if known.rows.shape[1] != candidates.rows.shape[1]:
        raise UsageError(
            f"expected members of {candidates.rows.shape[1]} numbers in {request.members}, found {known.rows.shape[1]}"
        )
    members = rows_among(candidates.rows, known.rows, SAME)
    missing = int((~rows_among(known.rows, candidates.rows, SAME)).sum())
    if missing:
        raise UsageError(
            f"expected every record of {request.members} among the candidates {request.candidates}, found {missing} of "
            f"{len(known.rows)} that are not; --members are rows of the pool itself"
        )
    return members


def _preparation(
    request: RankRequest, image_shape: tuple[int, int, int] | None, config: dict[str, Any]
) -> Preparation | None:
    """How the model's images are prepared, as public as the model itself: as its settings say, or as the user does."""
    if image_shape is None:
        return None
    own = preparation_of(config, image_shape)
    if request.mean is None and request.std is None:
        folders = [path for path in (request.candidates, request.non_members) if path is not None and path.is_dir()]
        if own is None and folders:
            raise UsageError(
                f"expected --mean and --std for the images in {folders[0]}, because config.json of {request.run} "
                "does not tell the model's, found neither"
            )
        return own
    return Preparation(
        mean=_channels(request.mean or "0", image_shape[0], "--mean"),
        std=_channels(request.std or "1", image_shape[0], "--std"),
        scale=torch.ones(0),
        image_shape=image_shape,
        standardise="none",
        norm="keep" if own is None else own.norm,
    )


def _channels(text: str, channels: int, flag: str) -> Tensor:
    try:
        values = [float(value) for value in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, channels) or (flag == "--std" and min(values) <= 0):
        raise UsageError(f"expected {flag} as one number or {channels}, one per channel, found {text!r}")
    return torch.tensor(values * channels if len(values) == 1 else values)


def _loss(name: Any) -> str | None:
    if name == "none":
        return None
    if name not in get_args(HeadLoss):
        raise UsageError(f"expected --loss {', '.join(get_args(HeadLoss))} or none, found {name!r}")
    return str(name)
