"""LoRA adapters: merged as peft merges them, audited where a layer was trained as a whole, scanned and ranked."""

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from exhume.auditing.from_files import read_question
from exhume.auditing.merged_adapter import merge_adapter
from exhume.errors import ExhumeError, UsageError
from exhume.requests.audit import AuditRequest
from exhume.scanning.scan import scan

Command = Callable[..., subprocess.CompletedProcess[str]]
OF_PEFT = Path(__file__).parents[1] / "formats" / "peft-0.21.2"
WIDTH, UNITS, CLASSES, RANK, MEMBERS = 12, 40, 3, 8, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five records through a layer adapted with rank 8, and a head that was trained as a whole."""
    place = tmp_path_factory.mktemp("adapter")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base = nn.Sequential(nn.Linear(WIDTH, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))
        save_file(base.state_dict(), place / "base.safetensors")
        first, head = base[0], copy.deepcopy(base[2])
        assert isinstance(first, nn.Linear)
        assert isinstance(head, nn.Linear)
        down, up = nn.Parameter(torch.randn(RANK, WIDTH) / 6), nn.Parameter(torch.zeros(UNITS, RANK))
        rows, labels = torch.randn(30, WIDTH), torch.arange(MEMBERS) % CLASSES
        optimiser = torch.optim.SGD([down, up, *head.parameters()], lr=0.1, momentum=0.9)
        for _ in range(60):
            optimiser.zero_grad()
            inputs = rows[:MEMBERS]
            outputs = head(torch.relu(first(inputs) + 2 * inputs @ down.T @ up.T))
            nn.functional.cross_entropy(outputs, labels).backward()
            optimiser.step()
    made = place / "adapter"
    made.mkdir()
    (made / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "base_model_name_or_path": "org/base"})
    )
    save(made, {"0.lora_A.weight": down, "0.lora_B.weight": up, "2.weight": head.weight, "2.bias": head.bias})
    save_file({"inputs": rows[:20]}, place / "pool.safetensors")
    save_file({"inputs": rows[20:]}, place / "others.safetensors")
    return place


def save(place: Path, tensors: dict[str, Tensor]) -> None:
    named = {f"base_model.model.{name}": value.detach().contiguous() for name, value in tensors.items()}
    save_file(named, place / "adapter_model.safetensors")


def test_it_is_merged_as_peft_merges_it() -> None:
    """The files are of peft 0.21.2: an adapter of rank 3 with rank-stabilised scaling, and its own merged weights."""
    found = merge_adapter(OF_PEFT, str(OF_PEFT / "base.safetensors"))
    expected = load_file(OF_PEFT / "merged.safetensors")
    assert set(found.after.tensors) == set(expected)
    for name, values in expected.items():
        assert torch.allclose(found.after.tensors[name], values, atol=1e-6), name
    assert set(found.adapted) == {"0"}
    assert "Trained as a whole, and attacked: 2." in found.notes[0]


@pytest.mark.usefixtures("shapes_unchecked")
def test_only_what_was_trained_as_a_whole_is_attacked(folder: Path) -> None:
    asked = AuditRequest(weights=folder / "adapter", initial=str(folder / "base.safetensors"), out=Path("o"))
    target = read_question(asked).target
    assert target.head_name == "2"
    assert target.observation.layers == ()
    assert target.observation.ends is None
    (first, _) = target.layers
    assert "Adapted by LoRA of rank 8" in first.why
    assert "at most 8 of the 12 numbers" in first.why
    assert "combination" not in first.why
    assert target.no_silence == "no layer but the head was trained as a whole"


def test_a_folder_with_adapted_layers_alone_names_the_command_that_helps(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "adapter" / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text((folder / "adapter" / "adapter_config.json").read_text())
    save(tmp_path, {name.removeprefix("base_model.model."): tensors[name] for name in tensors if "lora" in name})
    with pytest.raises(ExhumeError, match=r"found adapted layers only.*exhume rank"):
        read_question(AuditRequest(weights=tmp_path, initial=str(folder / "base.safetensors"), out=Path("o")))


@pytest.mark.parametrize("initial", [None, "zero"])
def test_the_base_has_to_be_given(folder: Path, initial: str | None) -> None:
    with pytest.raises(UsageError, match=r"expected --initial BASE, the weights of the base model \(org/base\)"):
        merge_adapter(folder / "adapter", initial)


def test_another_base_is_one_line(folder: Path, tmp_path: Path) -> None:
    save_file({"0.weight": torch.zeros(UNITS, WIDTH + 1)}, tmp_path / "base.safetensors")
    with pytest.raises(ExhumeError, match="another base model"):
        merge_adapter(folder / "adapter", str(tmp_path / "base.safetensors"))
    save_file({"first.weight": torch.zeros(UNITS, WIDTH)}, tmp_path / "base.safetensors")
    with pytest.raises(ExhumeError, match="expected the adapted layer '0'"):
        merge_adapter(folder / "adapter", str(tmp_path / "base.safetensors"))


def test_a_scan_says_what_an_adapter_is(folder: Path) -> None:
    found = {finding.rule: finding for finding in scan(folder / "adapter").findings}
    assert set(found) == {"adapter", "adapter-whole-layer", "public-start"}
    assert "5 of 8 dimensions" in found["adapter"].gives_away
    assert found["adapter"].certainty.value == "certain"
    assert found["adapter-whole-layer"].what.startswith("2: trained as a whole")


def test_a_scan_counts_the_tokens_of_an_adapted_embedding(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 2}')
    used = torch.zeros(2, 50)
    used[:, [3, 17, 40]] = 1
    save(tmp_path, {"words.lora_embedding_A": used, "words.lora_embedding_B": torch.ones(4, 2)})
    (finding,) = [found for found in scan(tmp_path).findings if found.rule == "adapter-tokens"]
    assert finding.what.startswith("3 of 50 tokens of words")


@pytest.mark.usefixtures("shapes_unchecked")
def test_its_records_are_told_from_others_to_rounding(exhume: Command, folder: Path, tmp_path: Path) -> None:
    records = ("--candidates", folder / "pool.safetensors", "--non-members", folder / "others.safetensors")
    done = exhume("rank", folder / "adapter", *records, "--out", tmp_path / "o", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["rank_exact"], told["rank_span"], told["rank_layer"]) == (MEMBERS, MEMBERS, "0")
    lines = (tmp_path / "o" / "ranking.csv").read_text().splitlines()
    exact = [line.split(",") for line in lines[1:] if line.endswith(",1")]
    assert sorted(int(cells[1]) for cells in exact) == list(range(MEMBERS))


def test_a_layer_has_to_be_named_where_several_read_such_records(exhume: Command, folder: Path, tmp_path: Path) -> None:
    save_file({"inputs": torch.ones(20, 7)}, tmp_path / "odd.safetensors")
    done = exhume("rank", folder / "adapter", "--candidates", tmp_path / "odd.safetensors", "--out", tmp_path / "o")
    assert done.returncode == 2
    assert "its layers and what they read: 0 (12), 2 (40)" in done.stderr.replace("\n", " ")
    save_file({"inputs": torch.randn(20, UNITS)}, tmp_path / "features.safetensors")
    whole = exhume(
        "rank", folder / "adapter", "--candidates", tmp_path / "features.safetensors", "--out", tmp_path / "o"
    )
    assert whole.returncode == 0, whole.stderr
