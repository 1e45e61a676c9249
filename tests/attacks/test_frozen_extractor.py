"""A hidden layer on a frozen extractor: embeddings, inputs through the extractor, and who was trained on."""

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import exhume
from exhume.attacks.probes.exact_matches import Recovered, exact_matches
from exhume.attacks.silent import inversion
from exhume.attacks.silent.inversion import invert
from exhume.errors import UsageError
from exhume.features.module import penultimate_features
from exhume.metrics.errors import relative_errors


class Behind(nn.Module):
    def __init__(self, extractor: nn.Module, width: int, hidden: int = 400) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.extractor(inputs))
        return found


@dataclass(frozen=True, eq=False)
class Trained:
    model: Behind
    before: dict[str, Tensor]
    inputs: Tensor
    others: Tensor

    def embed(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.model.extractor(inputs)
        return found

    @property
    def observation(self) -> exhume.Observation:
        return exhume.observe(self.model, initial=self.before, input_shape=tuple(self.inputs.shape[1:]))


def train(kind: str, seed: int = 0, n: int = 10) -> Trained:
    """The optimiser has the head alone; the extractor stays as it was drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inputs = torch.randn(2 * n, 1, 6, 6)
        if kind == "tanh":
            model = Behind(nn.Sequential(nn.Flatten(), nn.Linear(36, 80), nn.Tanh()), 80)
        elif kind == "wide relu":
            model = Behind(nn.Sequential(nn.Flatten(), nn.Linear(36, 160), nn.ReLU()), 160)
        elif kind == "narrow":
            model = Behind(nn.Sequential(nn.Flatten(), nn.Linear(36, 30), nn.Tanh()), 30)
        else:
            layers = (nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
            model = Behind(nn.Sequential(*layers), 64)
            model.extractor(inputs)  # statistics
        model.extractor.eval()
        before = copy.deepcopy(model.state_dict())
        made = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
        for _ in range(80):
            made.zero_grad()
            nn.functional.cross_entropy(model(inputs[:n]), torch.arange(n) % 3).backward()
            made.step()
    return Trained(model, before, inputs[:n], inputs[n:])


@cache
def attacked(kind: str) -> tuple[Trained, exhume.Observation, exhume.Reconstruction]:
    victim = train(kind)
    observation = victim.observation
    return victim, observation, exhume.reconstruct(observation)


@pytest.mark.parametrize("kind", ["tanh", "wide relu"])
def test_inputs_come_back_through_an_extractor_that_can_be_inverted(kind: str) -> None:
    victim, observation, found = attacked(kind)
    embedded = found.pieces
    assert embedded is not None
    assert embedded.facts["reads"] == "frozen features"
    assert float(relative_errors(victim.embed(victim.inputs).double(), embedded.inputs.double()).max()) < 1e-4
    assert torch.equal(exhume.whole_inputs(embedded, observation).inputs, found.inputs)
    assert exhume.whole_inputs(found, observation) is found
    assert found.facts["reads"] == "inputs"
    assert float(relative_errors(victim.inputs.flatten(1).double(), found.inputs.double()).max()) < 1e-3
    assert found.facts["expected_error"] < 1e-2
    assert len(found.certificate.confidence) == len(found.inputs) == len(found.coefficients) == 10


@pytest.mark.parametrize("kind", ["narrow", "pooled"])
def test_embeddings_stay_where_the_extractor_forgets(kind: str) -> None:
    victim, _, found = attacked(kind)
    assert found.pieces is None
    assert found.inputs.shape[1] == victim.embed(victim.inputs).shape[1]
    assert found.facts["reads"] == "frozen features"


def test_an_audit_recognises_records_by_their_embeddings(tmp_path: Path) -> None:
    victim = train("pooled")
    done = exhume.audit(
        victim.model, initial=victim.before, truth=victim.inputs, control=victim.others, budget_seconds=60
    )
    assert (done.summary["recovered"], done.summary["control"]["recovered"]) == (10, 0)
    assert "10 of 10 training images are recognised by their embeddings" in done.sentence
    assert done.summary["worst_relative_error"] < 1e-3
    assert {line["name"]: line["leak"] for line in done.subject.layers}["head.0"] == "attacked"
    done.save(tmp_path / "report.html")


def test_an_audit_goes_back_to_the_inputs_where_it_can(tmp_path: Path) -> None:
    victim = train("tanh")
    done = exhume.audit(victim.model, initial=victim.before, truth=victim.inputs, budget_seconds=60)
    assert "10 of 10 training images can be read from the weights." in done.sentence
    assert done.summary["worst_relative_error"] < 1e-3
    assert "10 of 10 embeddings lead back" in done.summary["subspace"]
    done.save(tmp_path / "report.html")


def extractor_of(layers: list[nn.Module], d: int, p: int) -> object:
    return penultimate_features(nn.Sequential(*layers, nn.Linear(p, 1)), str(len(layers)), (d,))


def test_an_inversion_of_a_linear_extractor_is_least_squares() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layer = nn.Linear(5, 9)
        extractor = extractor_of([layer], 5, 9)
        target = torch.randn(2, 9, dtype=torch.float64)
    found = invert(extractor, target, 1e-6, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    naive = torch.linalg.lstsq(layer.weight.double(), (target - layer.bias.double()).T).solution.T
    torch.testing.assert_close(found.inputs, naive.detach(), atol=1e-6, rtol=1e-6)
    assert not bool(found.exact.any())  # random targets are no embeddings


class Even(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.square()


@pytest.mark.parametrize("seed", range(5))
def test_two_inputs_with_one_embedding_are_not_called_exact(seed: int) -> None:
    """g(x) = (Wx)² has full rank at x, and the same value at −x."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        extractor = extractor_of([nn.Linear(3, 12, bias=False), Even()], 3, 12)
        target = extractor(torch.randn(2, 3, dtype=torch.float64))  # type: ignore[operator]
    found = invert(extractor, target, 1e-6, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    assert float(found.residual.max()) < 1e-5
    assert not bool(found.exact.any())


@pytest.mark.parametrize(("arrivals", "exact"), [(3, False), (4, True)])
def test_a_mirrored_start_that_comes_nowhere_is_none_of_those_that_agree(
    monkeypatch: pytest.MonkeyPatch, arrivals: int, exact: bool
) -> None:
    point, starts = torch.ones(3, dtype=torch.float64), []

    def descend(extractor: object, start: Tensor, target: Tensor, accuracy: float) -> inversion._Solved:
        starts.append(start)
        nowhere = len(starts) == 2 or len(starts) > arrivals + 1
        return inversion._Solved(start, 1.0, torch.inf) if nowhere else inversion._Solved(point, 0.0, 1e-6)

    monkeypatch.setattr(inversion, "_descend", descend)
    extractor = extractor_of([nn.Linear(3, 12)], 3, 12)
    target = torch.ones(1, 12, dtype=torch.float64)
    found = invert(extractor, target, 1e-6, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert [index for index, start in enumerate(starts) if torch.equal(start, -point)] == [1]
    assert found.exact.tolist() == [exact]


def test_ranking_puts_exact_matches_first_and_says_which() -> None:
    victim, observation, found = attacked("pooled")
    records = torch.cat([victim.others[:5], victim.inputs[:6]]).flatten(1)
    ranking = exhume.rank(observation, records, victim.others[5:].flatten(1), recovered=found)
    assert ranking.matches is not None
    assert ranking.matches.exact.tolist() == [False] * 5 + [True] * 6
    assert sorted(ranking.order[:6]) == list(range(5, 11))
    embeddings = victim.embed(records.reshape(-1, 1, 6, 6))
    layer = [torch.cat([w, b[:, None]], dim=1).detach() for w, b in _hidden(victim)]
    ones = torch.ones(len(embeddings), 1)
    again = exhume.rank(layer[1], torch.cat([embeddings, ones], dim=1), initial=layer[0], recovered=found)
    assert again.matches is not None
    assert torch.equal(again.matches.exact, ranking.matches.exact)


def test_a_non_member_as_close_takes_the_certainty() -> None:
    recovered = Recovered(torch.tensor([[1.0, 0.0]]), 1e-6)
    record = torch.tensor([[1.0, 1e-5]])
    assert exact_matches(record, recovered).exact.tolist() == [True]
    assert exact_matches(record, recovered, torch.tensor([[1.0, 2e-5]])).exact.tolist() == [False]


def test_results_of_other_attacks_hold_no_embeddings() -> None:
    observation = exhume.observe_features(torch.randn(60, 3), torch.randn(60), "gelu")
    found = exhume.reconstruct(observation, budget_seconds=0.01)
    with pytest.raises(UsageError, match="expected embeddings recovered by silent-units"):
        exhume.rank(observation, torch.randn(5, 3), recovered=found)


def _hidden(victim: Trained) -> list[tuple[Tensor, Tensor]]:
    layer = victim.model.head[0]
    assert isinstance(layer, nn.Linear)
    return [(victim.before["head.0.weight"], victim.before["head.0.bias"]), (layer.weight, layer.bias)]


def test_a_hidden_layer_in_a_file_names_its_records(tmp_path: Path) -> None:
    from exhume.experiments.rank_request import answer
    from exhume.requests.rank import RankRequest

    victim = train("pooled")
    for name, (weight, bias) in zip(("before", "after"), _hidden(victim), strict=True):
        tensors = {"weight": weight.detach().contiguous(), "bias": bias.detach().contiguous()}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    records = torch.cat([victim.embed(victim.inputs[:7]), victim.embed(victim.others[:4])])
    save_file({"embeddings": records}, tmp_path / "records.safetensors")
    save_file({"embeddings": victim.embed(victim.others[4:])}, tmp_path / "others.safetensors")
    files = {name: tmp_path / f"{name}.safetensors" for name in ("before", "after", "records", "others")}
    request = RankRequest(
        run=files["after"],
        candidates=files["records"],
        non_members=files["others"],
        initial=files["before"],
        hidden=True,
        out=tmp_path / "out",
    )
    done = answer(request)
    assert (done.summary["rank_recovered"], done.summary["rank_exact"]) == (10, 7)
    lines = (tmp_path / "out" / "ranking.csv").read_text().splitlines()
    place = lines[0].split(",").index("exact")
    assert [line.split(",")[place] for line in lines[1:]] == ["1"] * 7 + ["0"] * 4
    with pytest.raises(UsageError, match="expected --initial with --hidden"):
        answer(request.model_copy(update={"initial": None, "out": tmp_path / "other"}))
