"""What an attack is given in files: read before anything runs, told apart by content, found again by the attack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from exhume.attacks.foundation.outline import Outline
from exhume.attacks.prior.attack import ImagePrior
from exhume.errors import ExhumeError
from exhume.experiments.attack_files import content_digest
from exhume.experiments.attack_request import AttackRequest
from exhume.experiments.run import RunFolder
from exhume_papers.making.known_samples import write_known
from exhume_papers.sweeps.jobs import execute
from exhume_papers.sweeps.plan import PlannedRun
from exhume_papers.sweeps.sweep import Sweep
from exhume_papers.sweeps.sweeping import TrainJob

SPHERE = {"kind": "rf", "data": "sphere", "dim": 6, "samples": 3, "params": 90}
FACES = {"kind": "rf", "data": "faces", "samples": 2, "side": 5, "ratio": 2}


def planned(victim: dict[str, Any], **attack: Any) -> PlannedRun:
    return Sweep(victims=(victim,), attacks=(attack,)).plan().runs[0]


def trained(run: PlannedRun, root: Path) -> RunFolder:
    assert execute(TrainJob(run.victim), root, lambda words: None).failure is None
    return RunFolder(root / "victims" / run.victim.key)


def basis(path: Path, rank: int) -> str:
    path.parent.mkdir(exist_ok=True)
    save_file({"basis": torch.eye(6)[:rank].contiguous()}, path)
    return str(path)


def pictures(folder: Path, seed: int) -> str:
    folder.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(seed + number).integers(0, 256, (5, 5, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return str(folder)


def test_the_key_of_a_run_depends_on_what_is_in_a_file_and_not_on_where_it_lies(tmp_path: Path) -> None:
    here, there, other = (
        planned(SPHERE, subspace=basis(tmp_path / place / "basis.safetensors", rank))
        for place, rank in (("here", 4), ("there", 4), ("other", 5))
    )
    assert here.key == there.key != other.key
    assert here.method().name == "subspace"
    assert here.attack_words["subspace"] == str(tmp_path / "here" / "basis.safetensors")
    public, copy, others = (
        planned(FACES, prior="image", spectrum=pictures(tmp_path / name, seed))
        for name, seed in (("public", 1), ("copy", 1), ("others", 5))
    )
    assert public.key == copy.key
    assert len({public.key, others.key, planned(FACES, prior="image").key, planned(FACES).key}) == 4


def test_images_that_share_their_bytes_out_in_another_way_are_others(tmp_path: Path) -> None:
    for name, parts in (("a", (b"12", b"3")), ("b", (b"1", b"23"))):
        (tmp_path / name).mkdir()
        for number, content in enumerate(parts):
            (tmp_path / name / f"{number}.png").write_bytes(content)
    assert content_digest(tmp_path / "a") != content_digest(tmp_path / "b")


@pytest.mark.parametrize(
    ("victim", "attack"),
    [
        (SPHERE, {"subspace": "first_layer"}),
        (SPHERE, {"subspace": "FILE"}),
        (SPHERE, {"method": "informed", "known": "none.safetensors"}),
        (SPHERE, {"method": "informed", "known": "FILE"}),
        (FACES, {"prior": "image", "spectrum": "nowhere"}),
        (FACES, {"prior": "image", "spectrum": "FILE"}),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused_before_anything_runs(
    tmp_path: Path, victim: dict[str, Any], attack: dict[str, Any]
) -> None:
    (tmp_path / "file").write_text("{}")
    told = {name: str(tmp_path / "file") if value == "FILE" else value for name, value in attack.items()}
    with pytest.raises(ExhumeError, match=r"^attack 1: expected .*found") as refused:
        planned(victim, **told)
    assert "\n" not in str(refused.value)


def test_an_attack_gets_what_is_in_its_files(tmp_path: Path) -> None:
    run = planned(SPHERE | {"ridge": 0.1}, method="informed", missing=2)
    folder = trained(run, tmp_path)
    observation = folder.observation()
    inside = AttackRequest(subspace=basis(tmp_path / "basis.safetensors", 4)).prepare(folder, observation, 0)
    assert inside.observation.subspace is not None
    assert inside.observation.subspace.shape == (6, 4)
    elsewhere = write_known(folder, 1, tmp_path / "known.safetensors")
    given = AttackRequest(method="informed", known=str(elsewhere)).prepare(folder, observation, 0)
    assert given.observation.known is not None
    assert torch.equal(given.observation.known.inputs, folder.truth().inputs[[0, 2]])
    swept = run.prepare(folder, observation)
    assert swept.observation.known is not None
    assert torch.equal(swept.observation.known.inputs, folder.truth().inputs[[0, 1]])


def test_a_prior_has_the_spectrum_of_its_images(tmp_path: Path) -> None:
    run = planned(FACES, prior="image", spectrum=pictures(tmp_path / "public", 1))
    folder = trained(run, tmp_path)
    method = run.prepare(folder, folder.observation()).method
    assert isinstance(method, ImagePrior)
    assert method.spectrum.source == "public"
    assert isinstance(run.method(), ImagePrior)


def test_what_is_planned_for_a_victim_is_what_its_observation_shows(tmp_path: Path) -> None:
    wide = {"kind": "two-layer", "data": "faces", "samples": 2, "side": 5, "width": 9, "steps": 2}
    glm = {"kind": "glm", "data": "sphere", "dim": 6, "samples": 3, "loss": "square"}
    for victim in (SPHERE, FACES, glm, wide, wide | {"knows_first_layer": True}):
        run = planned(victim)
        assert run.victim.outline == Outline.of(trained(run, tmp_path).observation())
