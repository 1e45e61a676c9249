"""The ways into exhume that take files or words from outside, each with the files of the corpus that it reads.

A target is called with the folder of a corpus in which one file has been changed. It may raise an `ExhumeError`;
anything else that gets out of it is a fault.
"""

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz_training import go_on

from exhume.attacks.prior.spectrum import load_spectrum
from exhume.attacks.running.checkpoint import load_checkpoint
from exhume.attacks.running.snapshots import load_snapshots
from exhume.attacks.subspace.file import read_subspace
from exhume.auditing.from_files import read_question
from exhume.auditing.linear_versions import audit_linear
from exhume.auditing.records import TableOptions, read_records, read_rows
from exhume.auditing.stored_versions import stored_changes
from exhume.auditing.without_code import read_network
from exhume.cli.app import main
from exhume.data.config import DataConfig
from exhume.data.image_file import read_image
from exhume.data.load import load
from exhume.data.records import load_records
from exhume.experiments.adapted_layer import layer_of
from exhume.experiments.head_file import read_head, read_head_file
from exhume.experiments.run import RunFolder
from exhume.experiments.truth import load_truth
from exhume.features.ridge import RidgeFeatures
from exhume.features.rows import MappedRows
from exhume.formats.adapter import read_adapter
from exhume.formats.reading import read_contents
from exhume.known import load_known
from exhume.observation import load_observation
from exhume.observing.weights_file import read_weights
from exhume.recipe import read_recipe
from exhume.reconstruction import load_reconstruction
from exhume.report.page import rebuild
from exhume.requests.audit import AuditRequest
from exhume.scanning.scan import scan
from exhume.serving.outline import read_parts
from exhume.tensor_header import read_header
from exhume_papers.data.unpack import unpack
from exhume_papers.sweeps.listing import differences, list_runs, with_settings
from exhume_papers.sweeps.spec_file import plan_spec

SMALL_BENCH = ("--dim", "3", "--samples", "2", "--published", "0.1s", "--steps", "9")
SMALL_CURVE = ("--success-dim", "3", "--success-samples", "2", "--success-budget", "0.1s", "--trials", "1")
SHORT = {
    **dict.fromkeys(("attack", "audit", "compare", "count"), ("--budget", "0.2s")),
    "bench": (*SMALL_BENCH, *SMALL_CURVE),
}
"""What is added to a command that works for long: of an option that is given twice, the last one counts."""
EXIT_CODES = (None, 0, 1, 2, 130)


class Fault(Exception):
    """A command that ended in a way that was not foreseen."""


@dataclass(frozen=True)
class Target:
    """`files` are those that may be changed, by the mutator of that name; `share` of all inputs that it gets, about."""

    name: str
    mutator: str
    files: tuple[str, ...]
    call: Callable[[Path, Path], object]
    """Gets the folder of the corpus and the changed file in it."""
    share: float = 1.0
    writes: bool = False
    """Whether the folder has to be made anew afterwards."""


def run_command(*arguments: object) -> None:
    """The command line as a terminal has it: strict UTF-8 on standard output, one line and an exit code otherwise."""
    sys.argv = ["exhume", *map(str, arguments)]
    out, told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main()
        except SystemExit as left:
            code = left.code
    complaint = told.getvalue()
    asked_for = "--debug" in sys.argv  # which shows a traceback on purpose
    if code not in EXIT_CODES or "found a fault" in complaint or ("Traceback" in complaint and not asked_for):
        raise Fault(f"{' '.join(sys.argv)[:300]}: exit code {code}: {complaint[-600:]}")


def _observation(work: Path, changed: Path) -> None:
    seen = load_observation(changed.with_name("observation.safetensors"))
    if isinstance(seen.features, RidgeFeatures):
        seen.features.rows.block(0, min(2, seen.features.rows.p))


def _rows(work: Path, changed: Path) -> None:
    rows = MappedRows.open(changed)
    rows.block(0, min(2, rows.p))


def _checkpoint(work: Path, changed: Path) -> None:
    told = read_header(work / "stopped" / "checkpoint.safetensors").exhume
    load_checkpoint(changed, told.get("settings", {}))


def _listing(work: Path, changed: Path) -> None:
    found = list_runs(work / "runs")
    differences(with_settings(work / "runs", found))


def _audit(work: Path, changed: Path) -> None:
    read_question(
        AuditRequest(
            weights=work / "weights.safetensors",
            features=work / "V.safetensors",
            activation="relu",
            truth=str(work / "rows.safetensors"),
            initial=str(work / "initial.safetensors"),
            control=str(work / "control.safetensors"),
            out=work / "audit",
        )
    )


def _published(work: Path, changed: Path) -> None:
    for array in read_contents(changed).arrays.values():
        array.read()


def _scan(work: Path, changed: Path) -> None:
    for finding in scan(changed).findings:
        if finding.rows is not None:
            finding.rows.read()


def _adapter(work: Path, changed: Path) -> None:
    scan(changed.parent)
    base = str(changed.parents[1] / "base.safetensors")
    read_question(AuditRequest(weights=changed.parent, initial=base, out=work / "audit"))


def _adapted_layer(work: Path, changed: Path) -> None:
    layer_of(read_adapter(changed.parent), None, 3, changed.parent)


def _versions(work: Path, changed: Path) -> None:
    stored_changes(changed, changed.with_name("svc" + changed.suffix))
    stored_changes(changed.with_name("svc" + changed.suffix), changed)


def _outline(work: Path, changed: Path) -> None:
    content = changed.read_bytes()
    for part in read_parts(content, len(content)):
        assert part.content is not None


def _scaler(work: Path, changed: Path) -> None:
    read_records(changed.with_name("train.csv"), how=TableOptions(scaling=str(changed)))


def _scales(work: Path, changed: Path) -> None:
    read_records(changed.with_name("train.csv"), how=TableOptions(scaling=str(changed)))


def _columns(work: Path, changed: Path) -> None:
    read_records(changed.with_name("train.csv"), how=TableOptions(label="ill", columns=changed))


def _folder(work: Path, changed: Path) -> None:
    read_network(changed.parent)


def _scan_folder(work: Path, changed: Path) -> None:
    scan(changed.parent)


def _linear_versions(work: Path, changed: Path) -> None:
    public, other = str(work / "published/public.npy"), work / "published/older-head.skops"
    for new, old in ((changed, other), (other, changed)):
        audit_linear(AuditRequest(weights=new, against=old, public=public, out=work / "audit"))


def _members(work: Path, changed: Path) -> None:
    load_records(changed, label="ill", members="old")


def _training(work: Path, changed: Path) -> None:
    go_on(changed)


def _cifar10(work: Path, changed: Path) -> None:
    load(DataConfig(name="cifar10", samples=3, data_dir=work / "data"))


def _unpack(work: Path, changed: Path) -> None:
    target = work / "unpacked" / "photos"
    target.parent.mkdir(exist_ok=True)
    try:
        unpack(changed, "zip" if changed.suffix == ".zip" else "tar.gz", target)
    finally:
        shutil.rmtree(target.parent)


def _command(work: Path, changed: Path) -> None:
    words = [word.replace("{work}", str(work)) for word in json.loads(changed.read_bytes())]
    run_command(*words, *SHORT.get(words[0] if words else "", ()))


def _attack(work: Path, changed: Path) -> None:
    run_command("attack", changed.parent, "--iterations", "4", "--budget", "0.2s")


def _report(work: Path, changed: Path) -> None:
    run_command("report", changed.parent)


def _evaluate(work: Path, changed: Path) -> None:
    run_command("evaluate", changed.parent, "--json")


ARCHIVES = tuple(f"published/{name}" for name in ("svc.skops", "mlp.skops", "dense.keras", "arrays.npz", "kept.skops"))
HEADS = ("published/head.skops", "published/head.onnx")
ADAPTER = ("adapter", "plain-adapter")
ADAPTER_CONFIGS = tuple(f"published/{name}/adapter_config.json" for name in ADAPTER)
ADAPTER_TENSORS = tuple(f"published/{name}/adapter_model.safetensors" for name in ADAPTER)
PLAIN = tuple(
    f"published/{name}"
    for name in (
        "svc.onnx",
        "dense.h5",
        "rows.npy",
        "knn.joblib",
        "packed.joblib",
        "kernel.onnx",
        "checkpoint.pt",
    )
)
CHAIN = "published/chain.onnx"
ONNX = (CHAIN, "published/svc.onnx", "published/kernel.onnx", "published/head.onnx")
HUB_BINARY = tuple(f"published/hub/{name}" for name in ("optimizer.pt", "training_args.bin", "rng_state.pth"))
HUB_SETTINGS = tuple(
    f"published/hub/{name}.json" for name in ("config", "training_args", "trainer_state", "added_tokens")
)
AUDITED = ("weights", "V", "rows", "initial", "control")
RUN_FILES = ("config.json", "summary.json", "observation.safetensors", "truth.safetensors")
FOUND_FILES = ("reconstruction.safetensors", "snapshots.safetensors")
OBSERVED = tuple(
    f"runs/{run}/observation.safetensors" for run in ("rf", "file", "images", "two-layer", "midpoint", "resnet")
)
SEVERAL = tuple(
    f"data/several/{name}" for name in ("a.png", "a.jpg", "a.gif", "a.bmp", "a.webp", "a.tif", "gray16.png")
)

TARGETS = (
    Target("observation", "safetensors", (*OBSERVED, "runs/file/features.safetensors"), _observation, 12),
    Target(
        "reconstruction", "safetensors", ("runs/rf/reconstruction.safetensors",), lambda _, p: load_reconstruction(p), 4
    ),
    Target("truth", "safetensors", ("runs/images/truth.safetensors",), lambda _, p: load_truth(p), 4),
    Target("snapshots", "safetensors", ("runs/rf/snapshots.safetensors",), lambda _, p: load_snapshots(p), 2),
    Target("checkpoint", "safetensors", ("stopped/checkpoint.safetensors",), _checkpoint, 4),
    Target("known", "safetensors", ("runs/rf/known.safetensors",), lambda _, p: load_known(p, 3), 3),
    Target("features", "safetensors", ("V.safetensors",), _rows, 2),
    Target("subspace", "safetensors", ("basis.safetensors",), lambda _, p: read_subspace(p, 3), 2),
    Target("head", "safetensors", ("head.safetensors",), lambda _, p: read_head(p), 2),
    Target("head-models", "bytes", HEADS, lambda _, p: read_head_file(p), 3),
    Target("head-archives", "archive", HEADS[:1], lambda _, p: read_head_file(p), 3),
    Target("adapter", "safetensors", ADAPTER_TENSORS, _adapter, 3),
    Target("adapter-config", "json", ADAPTER_CONFIGS, _adapter, 3),
    Target("adapted-layer", "safetensors", ADAPTER_TENSORS, _adapted_layer, 2),
    Target("adapted-layer-config", "json", ADAPTER_CONFIGS, _adapted_layer, 2),
    Target("versions", "bytes", ("published/svc.skops", "published/svc.onnx"), _versions, 2),
    Target("versions-archives", "archive", ("published/svc.skops",), _versions, 2),
    Target("recipe", "json", ("published/recipe.json",), lambda _, p: read_recipe(p), 2),
    Target("scaler", "archive", ("published/scaler.skops",), _scaler, 2),
    Target("outline", "bytes", ("published/outline.bin",), _outline, 2),
    Target("arrays", "archive", ("published/arrays.npz",), lambda _, p: load_records(p), 1),
    Target("one-tensor-file", "safetensors", ("published/one.safetensors",), _published, 2),
    Target("records", "safetensors", ("embeddings.safetensors",), lambda _, p: load_records(p), 2),
    Target("rows", "safetensors", ("rows.safetensors", "runs/rf/truth.safetensors"), lambda _, p: read_rows(p), 3),
    Target("weights", "safetensors", ("weights.safetensors", "layers.safetensors"), lambda _, p: read_weights(p), 4),
    Target("torch-weights", "bytes", ("weights.pt",), lambda _, p: read_weights(p), 4),
    Target("published", "bytes", (*ARCHIVES, *PLAIN), _published, 4),
    Target("published-archives", "archive", ARCHIVES, _published, 6),
    Target("scan", "bytes", (*ARCHIVES, *PLAIN), _scan, 3),
    Target("scan-archives", "archive", ARCHIVES, _scan, 4),
    Target("scan-json", "json", ("published/look.ipynb", "published/config.json"), _scan, 2),
    Target("shards", "json", ("published/model.safetensors.index.json",), _published, 1),
    Target(
        "network",
        "bytes",
        (CHAIN, "published/dense.h5", "published/hub/model.safetensors"),
        lambda _, p: read_network(p),
        2,
    ),
    Target("network-archives", "archive", ARCHIVES[1:3], lambda _, p: read_network(p), 3),
    Target("table", "text", ("published/train.csv",), lambda _, p: read_records(p), 2),
    Target("parquet", "bytes", ("published/train.parquet",), lambda _, p: read_records(p), 2),
    Target("columns", "json", ("published/columns.json",), _columns, 1),
    Target("members", "text", ("published/members.csv",), _members, 1),
    Target("records-archive", "archive", ("published/arrays.npz",), lambda _, p: read_records(p), 1),
    Target("folder", "bytes", HUB_BINARY, _folder, 3),
    Target("folder-weights", "safetensors", ("published/hub/model.safetensors",), _folder, 2),
    Target("folder-settings", "json", HUB_SETTINGS, _folder, 2),
    Target("scan-folder", "bytes", HUB_BINARY, _scan_folder, 3),
    Target("scan-folder-settings", "json", HUB_SETTINGS, _scan_folder, 2),
    Target("onnx", "onnx", ONNX, _scan, 4),
    Target("onnx-network", "onnx", (CHAIN,), lambda _, p: read_network(p), 4),
    Target("onnx-head", "onnx", HEADS[1:], lambda _, p: read_head_file(p), 3),
    Target("onnx-versions", "onnx", ("published/svc.onnx",), _versions, 2),
    Target("linear-versions", "bytes", HEADS, _linear_versions, 2),
    Target("linear-versions-archives", "archive", HEADS[:1], _linear_versions, 2),
    Target("linear-versions-onnx", "onnx", HEADS[1:], _linear_versions, 2),
    Target("scales", "json", ("published/scales.json",), _scales, 1),
    Target("audit", "safetensors", tuple(f"{name}.safetensors" for name in AUDITED), _audit, 5),
    Target("training", "safetensors", ("training.safetensors", "training-first.safetensors"), _training, 3, True),
    Target("spectrum", "json", ("spectrum.json",), lambda _, p: load_spectrum(p), 2),
    Target("listing", "json", ("runs/rf/summary.json", "runs/rf/config.json"), _listing, 4),
    Target("page", "json", ("runs/images/report.json", "runs/rf/report.json"), lambda _, p: rebuild(p), 3),
    Target("trace", "text", ("runs/rf/trace.csv",), lambda _, p: RunFolder(p.parent).trace(), 3),
    Target("spec", "text", ("spec.toml",), lambda _, p: plan_spec(p), 6),
    Target("cifar10", "bytes", ("data/cifar-10-batches-bin/data_batch_1.bin",), _cifar10, 2),
    Target("cifar10-names", "text", ("data/cifar-10-batches-bin/batches.meta.txt",), _cifar10, 1),
    Target("image", "bytes", SEVERAL, lambda _, p: read_image(p), 12),
    Target("archive", "bytes", ("photos.tar.gz", "photos.zip"), _unpack, 3),
    Target("gauge", "safetensors", OBSERVED, lambda _, p: run_command("gauge", p), 1),
    Target("gauge-layers", "safetensors", ("layers.safetensors",), lambda _, p: run_command("gauge", p, "--dim", 3), 1),
    Target("command", "command", tuple(f"commands/{number}.json" for number in range(21)), _command, 0.8, True),
    Target("attack", "safetensors", ("runs/rf/observation.safetensors",), _attack, 0.2, True),
    Target("attack-goes-on", "safetensors", ("stopped/checkpoint.safetensors",), _attack, 0.2, True),
    Target(
        "evaluate",
        "safetensors",
        tuple(f"runs/{run}/{name}.safetensors" for run in ("rf", "images") for name in ("truth", "reconstruction")),
        _evaluate,
        0.3,
        True,
    ),
    Target(
        "report",
        "json",
        ("runs/rf/config.json", "runs/images/config.json", "runs/images/summary.json"),
        _report,
        0.2,
        True,
    ),
    Target(
        "report-tensors",
        "safetensors",
        tuple(f"runs/{run}/{name}" for run in ("rf", "images") for name in (*FOUND_FILES, "truth.safetensors")),
        _report,
        0.2,
        True,
    ),
    Target(
        "sweep",
        "json",
        ("small/runs/*/config.json", "small/runs/*/summary.json"),
        lambda work, _: run_command("sweep", work / "small.toml", "--engine", "here"),
        0.2,
        True,
    ),
)
BY_NAME = {target.name: target for target in TARGETS}
