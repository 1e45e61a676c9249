"""Each kind of finding is found in a file that has it, and in none that has not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, SVR, LinearSVC, OneClassSVM

from exhume.scanning.finding import Finding, Holds
from exhume.scanning.scan import scan
from published_files import fitted, iris, save_h5, save_keras, save_onnx, save_skops, some_layers


def found_in(path: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in scan(path).findings}


def rows(finding: Finding) -> np.ndarray:
    assert finding.rows is not None
    read = finding.rows.read()
    assert read.shape == (finding.rows.count, finding.rows.columns)
    return read


X, Y = iris()
CITIES = np.array([["Ulm"], ["Bern"], ["Ulm"]], dtype=object)


@pytest.mark.parametrize("model", [SVC(), SVC(kernel="linear"), SVR(), OneClassSVM()], ids=str)
def test_every_support_vector_is_listed(tmp_path: Path, model: Any) -> None:
    model = fitted(model)
    finding = found_in(save_skops(model, tmp_path / "a.skops"))["support-vectors"]
    np.testing.assert_array_equal(rows(finding), model.support_vectors_)
    assert finding.rows is not None
    assert finding.rows.numbers == tuple(model.support_)
    assert finding.certainty.value == "certain"


@pytest.mark.parametrize("scalers", [[StandardScaler()], [MinMaxScaler(), RobustScaler()]], ids=str)
def test_records_behind_scalers_come_in_their_own_units(tmp_path: Path, scalers: list[Any]) -> None:
    machine = fitted(make_pipeline(*scalers, SVC()))
    finding = found_in(save_skops(machine, tmp_path / "a.skops"))["support-vectors"]
    np.testing.assert_allclose(rows(finding), X[machine[-1].support_], atol=1e-12)
    assert "in their own units" in finding.gives_away
    neighbours = fitted(make_pipeline(*scalers, KNeighborsClassifier(3)))
    finding = found_in(save_skops(neighbours, tmp_path / "b.skops"))["stored-neighbours"]
    np.testing.assert_allclose(rows(finding), X, atol=1e-12)
    other = fitted(make_pipeline(Nystroem(random_state=0, n_components=5), StandardScaler(), SVC()))
    finding = found_in(save_skops(other, tmp_path / "c.skops"))["support-vectors"]
    np.testing.assert_array_equal(rows(finding), other[-1].support_vectors_)
    assert "as the model saw them" in finding.gives_away


@pytest.mark.parametrize(
    "model",
    [KNeighborsClassifier(3), KNeighborsRegressor(3, algorithm="brute"), NearestNeighbors(), KNNImputer()],
    ids=str,
)
def test_every_stored_neighbour_is_listed(tmp_path: Path, model: Any) -> None:
    finding = found_in(save_skops(fitted(model), tmp_path / "a.skops"))["stored-neighbours"]
    np.testing.assert_array_equal(rows(finding), X)


def test_every_stored_neighbour_of_a_tree_and_of_onnx_is_listed(tmp_path: Path) -> None:
    finding = found_in(save_skops(fitted(KernelDensity()), tmp_path / "a.skops"))["stored-neighbours"]
    np.testing.assert_array_equal(rows(finding), X)
    finding = found_in(save_onnx(fitted(KNeighborsClassifier(3)), tmp_path / "a.onnx"))["stored-neighbours"]
    np.testing.assert_allclose(rows(finding), X, rtol=1e-6)


@pytest.mark.parametrize(
    "model", [KernelRidge(kernel="rbf"), GaussianProcessRegressor(), GaussianProcessClassifier()], ids=str
)
def test_every_record_of_a_kernel_basis_is_listed(tmp_path: Path, model: Any) -> None:
    finding = found_in(save_skops(fitted(model), tmp_path / "a.skops"))["kernel-basis"]
    np.testing.assert_array_equal(rows(finding), X)


@pytest.mark.parametrize("model", [KernelRidge(kernel="precomputed"), KNeighborsClassifier(3, metric="precomputed")])
def test_values_of_a_kernel_are_not_taken_for_records(tmp_path: Path, model: Any) -> None:
    between = np.abs(X @ X.T)
    done = scan(save_skops(model.fit(between, Y), tmp_path / "a.skops"))
    assert [(finding.rule, finding.holds.value) for finding in done.findings] == [("kernel-values", "lead")]
    assert done.findings[0].rows is None


def test_nystroem_keeps_a_sample_and_random_features_keep_nothing(tmp_path: Path) -> None:
    model = fitted(Nystroem(n_components=7, random_state=0))
    finding = found_in(save_skops(model, tmp_path / "a.skops"))["nystroem-components"]
    assert finding.rows is not None
    assert finding.rows.numbers is not None
    np.testing.assert_array_equal(rows(finding), X[list(finding.rows.numbers)])
    assert scan(save_skops(fitted(RBFSampler(random_state=0)), tmp_path / "b.skops")).answer.value == "no"


@pytest.mark.parametrize(
    ("model", "data", "rule", "holds"),
    [
        (SimpleImputer(strategy="most_frequent"), X, "imputer-statistics", "values"),
        (SimpleImputer(strategy="mean"), X, "imputer-statistics", "lead"),
        (OneHotEncoder(), CITIES, "encoder-categories", "values"),
        (OrdinalEncoder(), CITIES, "encoder-categories", "values"),
        (QuantileTransformer(n_quantiles=50), X, "quantiles", "values"),
        (MinMaxScaler(), X, "quantiles", "values"),
        (KBinsDiscretizer(quantile_method="averaged_inverted_cdf"), X, "quantiles", "values"),
        (StandardScaler(), X, "column-statistics", "lead"),
        (CountVectorizer(), ["Ada met Bo", "Bo met Cy"], "vocabulary", "values"),
    ],
    ids=str,
)
def test_values_and_statistics_are_found(tmp_path: Path, model: Any, data: Any, rule: str, holds: str) -> None:
    finding = found_in(save_skops(model.fit(data), tmp_path / "a.skops"))[rule]
    assert (finding.holds.value, finding.certainty.value) == (holds, "certain")


def test_a_line_that_bends_at_records_and_a_class_of_one_record(tmp_path: Path) -> None:
    line = IsotonicRegression().fit(X[:, 0], Y)
    assert "quantiles" in found_in(save_skops(line, tmp_path / "a.skops"))
    bayes = GaussianNB().fit(X[:51], Y[:51])  # one record of the second class
    np.testing.assert_array_equal(rows(found_in(save_skops(bayes, tmp_path / "b.skops"))["class-means"]), X[50:51])
    assert "class-means" not in found_in(save_skops(GaussianNB().fit(X, Y), tmp_path / "c.skops"))


def test_a_cluster_of_one_record_is_that_record(tmp_path: Path) -> None:
    far = np.concatenate([X, [[90.0, 90, 90, 90]]])
    clusters = KMeans(3, n_init=1, random_state=0).fit(far)
    np.testing.assert_allclose(rows(found_in(save_skops(clusters, tmp_path / "a.skops"))["class-means"]), far[-1:])
    assert scan(save_skops(KMeans(3, n_init=1, random_state=0).fit(X), tmp_path / "b.skops")).answer.value == "no"


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=1000), LinearSVC()], ids=str)
def test_linear_models_keep_no_record(tmp_path: Path, model: Any) -> None:
    done = scan(save_skops(fitted(model), tmp_path / "a.skops"))
    assert (done.answer.value, done.findings) == ("no", ())
    assert done.sentence.startswith("Is training data in here? No")
    done = scan(save_onnx(fitted(model), tmp_path / "a.onnx"))
    assert (done.answer.value, done.unread) == ("no", ())


def test_a_network_of_scikit_learn_keeps_its_seed_and_its_optimiser(tmp_path: Path) -> None:
    model = fitted(MLPClassifier((8,), max_iter=5, random_state=3))
    found = found_in(save_skops(model, tmp_path / "a.skops"))
    assert set(found) == {"seed", "optimiser-state"}
    assert "(3)" in found["seed"].what


def test_forests_are_a_lead_once(tmp_path: Path) -> None:
    model = fitted(RandomForestClassifier(3, random_state=0))
    for path in (save_skops(model, tmp_path / "a.skops"), save_onnx(model, tmp_path / "a.onnx")):
        assert [finding.rule for finding in scan(path).findings] == ["trees"]


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def checkpoint(**more: object) -> dict[str, object]:
    model = network()
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimiser.step()
    return {"model": model.state_dict(), "optimizer": optimiser.state_dict(), **more}


def test_a_checkpoint_gives_its_optimiser_its_average_its_seed_and_its_batch(tmp_path: Path) -> None:
    average = network().state_dict()
    torch.save(checkpoint(ema=average, args={"seed": 11, "lr": 0.1}, init=average), tmp_path / "a.pt")
    found = found_in(tmp_path)
    assert set(found) == {"optimiser-state", "moving-average", "seed", "initial-weights", "batch-norm-of-one-batch"}
    assert "exp_avg" in found["optimiser-state"].what
    assert "(11)" in found["seed"].what
    assert scan(tmp_path).answer.value == "leads"


def test_weights_alone_are_no_finding(tmp_path: Path) -> None:
    state = network().state_dict() | {"1.num_batches_tracked": torch.tensor(5000)}
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pt")
    (tmp_path / "b.pt").rename(tmp_path / "one" if (tmp_path / "one").exists() else tmp_path / "a.bin")
    (tmp_path / "a.bin").unlink()
    assert scan(tmp_path).answer.value == "no"


def test_several_checkpoints_are_found_and_shards_are_none(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file(network().state_dict(), tmp_path / f"checkpoint-{step}" / "model.safetensors")
    assert "2 states" in found_in(tmp_path)["several-checkpoints"].what
    shards = tmp_path / "shards"
    shards.mkdir()
    state = network().state_dict()
    names = sorted(state)
    save_file({name: state[name] for name in names[:4]}, shards / "m-1.safetensors")
    save_file({name: state[name] for name in names[4:]}, shards / "m-2.safetensors")
    listed = {name: f"m-{1 if name in names[:4] else 2}.safetensors" for name in names}
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    assert "several-checkpoints" not in found_in(shards)


def test_rows_of_an_embedding_table_that_moved_are_counted(tmp_path: Path) -> None:
    table = torch.randn(50, 4)
    save_file({"embed.weight": table, "fc.weight": torch.ones(2, 4)}, tmp_path / "a.safetensors")
    moved = table.clone()
    moved[[3, 7, 9]] += 1
    save_file({"embed.weight": moved, "fc.weight": torch.zeros(2, 4)}, tmp_path / "b.safetensors")
    assert found_in(tmp_path)["embedding-rows"].what.startswith("3 of 50 rows")


def test_rows_that_weight_decay_alone_shrank_have_not_moved(tmp_path: Path) -> None:
    """AdamW as it is: it shrinks every row at each step, and moves those of words that occur."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(60, 8)
    save_file({"embed.weight": table.weight.detach().clone()}, tmp_path / "a.safetensors")
    optimiser = torch.optim.AdamW(table.parameters(), lr=1e-3, weight_decay=0.1)
    for _ in range(30):
        optimiser.zero_grad()
        table(torch.tensor([3, 7, 9])).square().sum().backward()
        optimiser.step()
    save_file({"embed.weight": table.weight.detach().clone()}, tmp_path / "b.safetensors")
    what = found_in(tmp_path)["embedding-rows"].what
    assert what == "3 of 60 rows of an embedding table moved between two states, and all others shrank alike"


def test_a_table_of_places_in_a_text_is_none_of_words(tmp_path: Path) -> None:
    for name in ("a", "b"):
        places = {f"embeddings.{kind}_embeddings.weight": torch.randn(50, 4) for kind in ("position", "token_type")}
        save_file(places, tmp_path / f"{name}.safetensors")
    assert not {"embedding-table", "embedding-rows"} & set(found_in(tmp_path))


def test_rows_that_moved_between_the_weights_and_their_average_are_counted(tmp_path: Path) -> None:
    table = torch.randn(50, 4)
    moved = table.clone()
    moved[[3, 7]] += 1
    torch.save({"model": {"embed.weight": moved}, "ema": {"module.embed.weight": table}}, tmp_path / "a.pt")
    assert found_in(tmp_path)["embedding-rows"].what.startswith("2 of 50 rows")


def test_states_of_an_optimiser_are_no_states_of_a_model(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        torch.save(checkpoint()["optimizer"], tmp_path / f"checkpoint-{step}" / "optimizer.pt")
    assert set(found_in(tmp_path)) == {"optimiser-state"}


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    """training_args.bin is a pickle with code: it is not run, and its seed is read as text."""
    save_file({"fc.weight": torch.ones(2, 4)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"_name_or_path": "/home/me/secret/base", "architectures": ["X"]}')
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    (tmp_path / "tokenizer.json").write_text("{}")

    class Arguments:
        def __init__(self) -> None:
            self.seed, self.output_dir = 42, "out"

    globals()["Arguments"] = Arguments
    Arguments.__qualname__ = "Arguments"
    torch.save(Arguments(), tmp_path / "training_args.bin")
    torch.save(
        {"state": {0: {"exp_avg": torch.ones(2, 4)}}, "param_groups": [{"params": [0]}]}, tmp_path / "optimizer.pt"
    )
    torch.save({"cpu": torch.zeros(8, dtype=torch.uint8)}, tmp_path / "rng_state.pth")
    done = scan(tmp_path)
    found = {finding.rule: finding for finding in done.findings}
    assert set(found) == {"optimiser-state", "public-start", "seed", "random-state", "vocabulary", "log"}
    assert (found["seed"].where, found["seed"].certainty.value) == ("training_args.bin: seed", "likely")
    assert "'base'" in found["public-start"].what
    assert [item.name for item in done.unread] == ["training_args.bin"]
    assert "TrainingArguments.to_json_string()" in done.unread[0].reason
    assert str(tmp_path) not in json.dumps(done.to_json())


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    save_file(
        {"base.lora_A.weight": torch.ones(2, 4), "base.lora_B.weight": torch.ones(4, 2)},
        tmp_path / "adapter_model.safetensors",
    )
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "org/base"}')
    finding = found_in(tmp_path)["public-start"]
    assert "'org/base'" in finding.what
    assert finding.certainty.value == "certain"


def test_biases_beside_an_adapter_are_no_whole_layer(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 2, "bias": "lora_only"}')
    factors = {"fc.lora_A.weight": torch.ones(2, 3), "fc.lora_B.weight": torch.ones(5, 2), "fc.bias": torch.ones(5)}
    named = {f"base_model.model.{name}": value for name, value in factors.items()}
    save_file(named, tmp_path / "adapter_model.safetensors")
    found = found_in(tmp_path)
    assert found["adapter-biases"].what == "the biases of 1 layer: trained, beside an adapter"
    assert "adapter-whole-layer" not in found


@pytest.mark.parametrize("odd", ['"use_dora": true', '"init_lora_weights": "pissa"'])
def test_an_adapter_that_is_not_read_is_said(tmp_path: Path, odd: str) -> None:
    tensors = {"base.lora_A.weight": torch.ones(2, 4), "base.lora_B.weight": torch.ones(4, 2)}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(f'{{"peft_type": "LORA", "lora_alpha": 2, {odd}}}')
    done = scan(tmp_path)
    assert done.answer.value == "unknown"
    assert [item.name for item in done.unread] == ["adapter_config.json"]
    assert "merge_and_unload" in done.unread[0].reason


@pytest.mark.parametrize("save", [save_keras, save_h5])
def test_keras_with_its_optimiser(tmp_path: Path, save: Callable[..., Path]) -> None:
    path = save(some_layers(), tmp_path / ("a.keras" if save is save_keras else "a.h5"), optimiser=True)
    assert set(found_in(path)) == {"optimiser-state"}
    assert found_in(save(some_layers(), path)) == {}


def test_a_vocabulary_in_the_archive_of_a_keras_model(tmp_path: Path) -> None:
    import zipfile

    path = save_keras(some_layers(), tmp_path / "a.keras")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("assets/layers/text_vectorization/vocabulary.txt", "Ada\nBo")
    assert set(found_in(path)) == {"vocabulary"}


def test_what_was_packed_along(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,b\n1,2\n")
    (tmp_path / "results.csv").write_text("accuracy\n0.5\n")
    np.savez(tmp_path / "arrays.npz", x_train=X)
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.log").write_text("epoch 1")
    output = {"data": {"text/html": ["<table>"], "image/png": "x"}}
    notebook = {"cells": [{"cell_type": "code", "outputs": [output]}, {"cell_type": "code", "outputs": []}]}
    (tmp_path / "look.ipynb").write_text(json.dumps(notebook))
    done = scan(tmp_path)
    by_where = {(finding.rule, finding.where): finding.certainty.value for finding in done.findings}
    assert by_where == {
        ("packed-along", "results.csv and 1 more"): "likely",
        ("data-array", "arrays.npz: x_train"): "likely",
        ("notebook", "look.ipynb"): "likely",
        ("history", ".git"): "possible",
        ("log", "run.log"): "possible",
    }
    assert done.sentence.startswith("Is training data in here? Very likely")


def test_a_table_of_results_alone_is_only_possible(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("accuracy\n0.5\n")
    assert scan(tmp_path).answer.value == "leads"


def test_a_cleared_notebook_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "look.ipynb").write_text('{"cells": [{"cell_type": "code", "outputs": []}]}')
    assert scan(tmp_path).answer.value == "no"


def test_a_pickle_is_not_run_and_its_class_is_named(tmp_path: Path) -> None:
    import joblib

    joblib.dump(fitted(KNeighborsClassifier(3)), tmp_path / "model.joblib")
    done = scan(tmp_path)
    assert [finding.rule for finding in done.findings] == ["pickled-records"]
    assert 'skops.io.dump(joblib.load("model.joblib"), "model.skops")' in done.findings[0].remedy
    assert done.sentence.startswith("Is training data in here? Very likely")


def test_an_empty_file_and_settings_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "train.csv").touch()
    (tmp_path / "train.json").write_text('{"lr": 0.1, "epochs": 3, "name": "a"}')
    assert found_in(tmp_path) == {}
    (tmp_path / "train.json").write_text('{"rows": [[0.1, 3]]}')
    assert set(found_in(tmp_path)) == {"packed-along"}


@pytest.mark.parametrize(
    ("text", "holds"), [("age;sex;bmi\n", Holds.LEAD), ("age,sex\n31,f\n", Holds.RECORDS), ("31,f", Holds.RECORDS)]
)
def test_the_names_of_columns_alone_are_no_records(tmp_path: Path, text: str, holds: Holds) -> None:
    (tmp_path / "train.csv").write_text(text)
    assert [finding.holds for finding in scan(tmp_path).findings] == [holds]


@pytest.mark.parametrize("packed", [0, 3])
def test_a_class_behind_arrays_of_a_pickle_is_named(tmp_path: Path, packed: int) -> None:
    """joblib writes arrays between the instructions; those of the scaler lie in front of the machine."""
    import joblib

    joblib.dump(fitted(make_pipeline(StandardScaler(), SVC())), tmp_path / "model.joblib", compress=packed)
    assert [finding.what for finding in scan(tmp_path).findings] == ["a pickle that asks for SVC"]


def test_files_of_exhume_itself_are_known(tmp_path: Path) -> None:
    from exhume.files import write_tensors

    write_tensors(tmp_path / "truth.safetensors", "truth", {"inputs": torch.ones(3, 2)}, {})
    assert set(found_in(tmp_path)) == {"exhume-file"}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("before", "after"),
        ("init", "final"),
        ("checkpoint-20", "checkpoint-100"),
        ("epoch_9", "epoch_10"),
        ("model-step-0", "averaged"),
    ],
)
def test_the_earlier_of_two_states_is_proposed_as_the_start(tmp_path: Path, earlier: str, later: str) -> None:
    for name in (earlier, later):
        save_file(network().state_dict(), tmp_path / f"{name}.safetensors")
    found = found_in(tmp_path)["several-checkpoints"]
    assert found.attack.startswith(f"exhume audit {later}.safetensors --initial {earlier}.safetensors")


def test_the_remedy_is_that_of_the_tool_that_made_the_file(tmp_path: Path) -> None:
    found = found_in(save_skops(fitted(MLPClassifier((5,), max_iter=3)), tmp_path / "a.skops"))
    assert "del model._optimizer" in found["optimiser-state"].remedy
    torch.save(checkpoint(), tmp_path / "a.pt")
    assert "state_dict" in found_in(tmp_path / "a.pt")["optimiser-state"].remedy


def test_tables_too_large_to_be_compared_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.scanning.finders.embeddings.MOST_BYTES", 16 * 200 - 1)
    for name in ("a", "b"):
        save_file({"embed.weight": torch.randn(50, 4), "fc.weight": torch.ones(2, 4)}, tmp_path / f"{name}.safetensors")
    found = found_in(tmp_path)["embedding-rows"]
    assert "not compared" in found.what
    assert found.certainty.value == "possible"
