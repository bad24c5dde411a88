"""The XGBoost engine with models trained here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, EngineOptions
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.tabular import TabularEngine
from serving.engines.base.warmup import warm_up
from serving.engines.trees.xgboost import load
from tests.support.tabular import ask, described, file, folder, iris, two_kinds


def trained(objective: str, data: tuple[Tensor, Tensor], **params: Any) -> xgboost.Booster:
    features, labels = data
    depth = {} if params.get("booster") == "gblinear" else {"max_depth": 3}
    params = {"objective": objective, "nthread": 1, **depth, **params}
    return xgboost.train(params, xgboost.DMatrix(features, labels), 5)


def saved(model: Any, folder: Path, name: str = "model.ubj") -> bytes:
    path = folder / name
    model.save_model(path)
    return path.read_bytes()


def engine(content: bytes) -> TabularEngine:
    return load(file(content), EngineOptions())


@pytest.mark.parametrize("name", ["model.ubj", "model.json"])
def test_a_booster_answers_as_it_does_itself(name: str, tmp_path: Path) -> None:
    features, _ = iris()
    booster = trained("multi:softprob", iris(), num_class=3)
    made = engine(saved(booster, tmp_path, name))
    assert made.signature.inputs[0].shape == (ANY, 4)
    assert described(made) == dict.fromkeys(("output-0", "probabilities", "predict"), ("FP32", (ANY, 3)))
    expected = booster.predict(xgboost.DMatrix(features))
    np.testing.assert_array_equal(ask(made, "output-0", features), expected)
    np.testing.assert_array_equal(ask(made, "probabilities", features), expected)
    assert warm_up(made) is not None


@pytest.mark.parametrize(
    ("objective", "params"),
    [("reg:squarederror", {}), ("binary:hinge", {}), ("multi:softmax", {"num_class": 3}), ("reg:absoluteerror", {}),
     ("reg:squarederror", {"booster": "gblinear"}), ("reg:squarederror", {"booster": "dart"}), ("rank:pairwise", {})],
)  # fmt: skip
def test_what_gives_one_number_has_no_probabilities(objective: str, params: dict[str, Any], tmp_path: Path) -> None:
    features, _ = two_kinds()
    booster = trained(objective, two_kinds(), **params)
    made = engine(saved(booster, tmp_path))
    assert described(made) == dict.fromkeys(("output-0", "predict"), ("FP32", (ANY,)))
    np.testing.assert_allclose(ask(made, "output-0", features), booster.predict(xgboost.DMatrix(features)), rtol=1e-6)


def test_two_classes_have_two_probabilities(tmp_path: Path) -> None:
    features, _ = two_kinds()
    booster = trained("binary:logistic", two_kinds())
    made = engine(saved(booster, tmp_path))
    ones = booster.predict(xgboost.DMatrix(features))
    np.testing.assert_array_equal(ask(made, "output-0", features), ones)
    np.testing.assert_array_equal(ask(made, "probabilities", features), np.stack((1 - ones, ones), axis=1))


@pytest.mark.parametrize(
    ("data", "params"),
    [(iris, {}), (two_kinds, {}), (iris, {"objective": "multi:softmax"}), (two_kinds, {"objective": "binary:hinge"})],
)
def test_a_classifier_gives_labels(data: Any, params: dict[str, Any], tmp_path: Path) -> None:
    features, kinds = data()
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1, **params).fit(features, kinds)
    made = engine(saved(model, tmp_path))
    assert described(made)["output-0"] == ("INT64", (ANY,))
    np.testing.assert_array_equal(ask(made, "output-0", features), model.predict(features))
    if not params:
        np.testing.assert_allclose(ask(made, "probabilities", features), model.predict_proba(features), rtol=1e-6)


def test_a_classifier_of_several_labels_gives_each(tmp_path: Path) -> None:
    features, kinds = iris()
    labels = np.stack((kinds == 0, kinds == 2), axis=1).astype(int)
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(features, labels)
    made = engine(saved(model, tmp_path))
    np.testing.assert_array_equal(ask(made, "output-0", features), model.predict(features))
    np.testing.assert_allclose(ask(made, "probabilities", features), model.predict_proba(features), rtol=1e-6)


def test_a_wrapper_stops_at_its_best_iteration_and_a_booster_does_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4))
    values = features[:, 0] + rng.normal(size=300)
    model = xgboost.XGBRegressor(n_estimators=50, n_jobs=1, early_stopping_rounds=5)
    model.fit(features[:200], values[:200], eval_set=[(features[200:], values[200:])], verbose=False)
    assert model.best_iteration < model.get_booster().num_boosted_rounds() - 1
    made = engine(saved(model, tmp_path))
    np.testing.assert_allclose(ask(made, "output-0", features), model.predict(features), rtol=1e-6)
    bare = engine(saved(model.get_booster(), tmp_path))
    everything = model.get_booster().predict(xgboost.DMatrix(features))
    np.testing.assert_allclose(ask(bare, "output-0", features), everything, rtol=1e-6)


def test_it_uses_the_threads_that_it_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved(trained("reg:squarederror", iris(), nthread=2), tmp_path)
    boosters: list[xgboost.Booster] = []
    real = xgboost.Booster

    def remembered(*args: Any, **kwargs: Any) -> xgboost.Booster:
        boosters.append(real(*args, **kwargs))
        return boosters[-1]

    monkeypatch.setattr(xgboost, "Booster", remembered)
    load(file(content), EngineOptions(threads=1))
    assert '"nthread":"1"' in boosters[0].save_config()


def json_of(folder: Path, objective: str = "multi:softprob", **params: Any) -> Any:
    params = {"num_class": 3, **params} if objective.startswith("multi") else params
    return json.loads(saved(trained(objective, iris(), **params), folder, "model.json"))


def first_tree(model: Any) -> Any:
    return model["learner"]["gradient_booster"]["model"]["trees"][0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("left_children", 10**6), ("left_children", 0), ("left_children", -2), ("right_children", 1 << 33),
     ("split_indices", 4), ("split_indices", 1 << 32), ("split_indices", 0.5)],
)  # fmt: skip
def test_a_tree_that_leads_elsewhere_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    model = json_of(tmp_path)
    engine(json.dumps(model).encode())
    first_tree(model)[field][0] = value
    with pytest.raises(LoadFailed, match="damaged"):
        engine(json.dumps(model).encode())


def test_a_tree_that_leads_back_is_refused(tmp_path: Path) -> None:
    model = json_of(tmp_path)
    tree = first_tree(model)
    child = tree["left_children"][0]
    tree["left_children"][child], tree["right_children"][child] = child, child
    tree["parents"][child] = child
    with pytest.raises(LoadFailed, match="damaged"):
        engine(json.dumps(model).encode())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model["tree_info"].__setitem__(0, 3), "damaged"),
        (lambda model: model["tree_info"].pop(), "damaged"),
        (lambda model: model["trees"][0]["parents"].__setitem__(1, 10**6), "damaged"),
        (lambda model: model["trees"][0]["split_indices"].pop(), "damaged"),
        (lambda model: model["trees"][0]["categories_nodes"].append(0), "damaged"),
        (lambda model: model["trees"][0].pop("parents"), "damaged"),
        (lambda model: model["iteration_indptr"].__setitem__(1, 10**6), "damaged"),
        (lambda model: model["gbtree_model_param"].update(num_trees="1_5"), "damaged"),
    ],
)
def test_a_forest_whose_numbers_do_not_fit_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    model = json_of(tmp_path)
    change(model["learner"]["gradient_booster"]["model"])
    with pytest.raises(LoadFailed, match=words):
        engine(json.dumps(model).encode())


def test_a_tree_that_leads_elsewhere_is_refused_in_binary_too(tmp_path: Path) -> None:
    content = saved(trained("reg:squarederror", iris()), tmp_path)
    begin = content.index(b"[$l#L", content.index(b"left_children")) + len(b"[$l#L") + 8
    assert int.from_bytes(content[begin : begin + 4], "big") == 1
    with pytest.raises(LoadFailed, match="damaged"):
        engine(content[:begin] + (1 << 20).to_bytes(4, "big") + content[begin + 4 :])


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    text = json.dumps(json_of(tmp_path))
    twice = text.replace('"learner":', '"learner": {}, "learner":', 1)
    with pytest.raises(LoadFailed, match="damaged"):
        engine(twice.encode())


def test_a_linear_model_without_all_weights_is_refused(tmp_path: Path) -> None:
    model = json_of(tmp_path, "reg:squarederror", booster="gblinear")
    model["learner"]["gradient_booster"]["model"]["weights"].pop()
    with pytest.raises(LoadFailed, match="damaged"):
        engine(json.dumps(model).encode())


def test_trees_of_categories_pruned_trees_and_trees_of_vectors_are_served(tmp_path: Path) -> None:
    features, kinds = iris()
    rounded = features.round().astype(int)
    matrix = xgboost.DMatrix(rounded, kinds, feature_types=["c"] * 4, enable_categorical=True)
    forms: list[tuple[Any, dict[str, Any]]] = [
        (matrix, {"max_cat_to_onehot": 1}),
        (xgboost.DMatrix(features, kinds), {"gamma": 5.0, "tree_method": "approx"}),
        (xgboost.DMatrix(features, np.eye(3)[kinds]), {"multi_strategy": "multi_output_tree", "tree_method": "hist"}),
        (xgboost.DMatrix(features, kinds), {"num_parallel_tree": 3, "subsample": 0.5}),
    ]
    for data, params in forms:
        booster = xgboost.train({"nthread": 1, "objective": "reg:squarederror", **params}, data, 5)
        for name in ("model.ubj", "model.json"):
            made = engine(saved(booster, tmp_path, name))
            rows = rounded if data is matrix else features
            np.testing.assert_allclose(ask(made, "output-0", rows), booster.predict(data), rtol=1e-6)


def test_a_folder_is_served_by_its_only_model(tmp_path: Path) -> None:
    features, _ = iris()
    content = saved(trained("reg:squarederror", iris()), tmp_path)
    made = load(folder(tmp_path / "m", iris__ubj=content, notes__txt=b"", config__json=b"{}"), EngineOptions())
    assert ask(made, "output-0", features).shape == (150,)
    with pytest.raises(LoadFailed, match=r"2 files \.ubj"):
        load(folder(tmp_path / "m", other__ubj=content), EngineOptions())


@pytest.mark.parametrize("name", ["model.ubj", "model.json"])
def test_damaged_models_are_refused_in_words_without_paths(name: str, tmp_path: Path) -> None:
    content = saved(trained("reg:squarederror", iris()), tmp_path, name)
    cuts = {int(len(content) * part / 200) for part in range(200)} | set(range(40)) | {len(content) - 1}
    for damaged in [*(content[:cut] for cut in sorted(cuts)), b"{}", b"[1]", b"binf" + content, b"\0" * 100]:
        with pytest.raises(EngineError) as error:
            engine(damaged)
        assert "\n" not in str(error.value) and "/" not in str(error.value)
