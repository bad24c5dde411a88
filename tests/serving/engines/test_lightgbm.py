"""The LightGBM engine with models trained here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, EngineOptions
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.tabular import TabularEngine
from serving.engines.base.warmup import warm_up
from serving.engines.trees.lightgbm import load
from tests.support.tabular import ask, described, file, folder, iris, two_kinds

SOME: dict[str, Any] = {"num_leaves": 7, "min_data_in_leaf": 2, "num_threads": 1, "verbose": -1}


def trained(objective: str, data: tuple[Tensor, Tensor], **params: Any) -> lightgbm.Booster:
    features, labels = data
    return lightgbm.train({**SOME, "objective": objective, **params}, lightgbm.Dataset(features, labels), 5)


def engine(booster: lightgbm.Booster) -> TabularEngine:
    return load(file(booster.model_to_string().encode()), EngineOptions())


def test_a_booster_answers_as_it_does_itself() -> None:
    features, _ = iris()
    booster = trained("multiclass", iris(), num_class=3)
    made = engine(booster)
    assert made.signature.inputs[0].shape == (ANY, 4)
    assert described(made) == dict.fromkeys(("output-0", "probabilities", "predict"), ("FP64", (ANY, 3)))
    for rows in (features, features[:1]):
        np.testing.assert_array_equal(ask(made, "output-0", rows), booster.predict(rows))
        np.testing.assert_array_equal(ask(made, "probabilities", rows), booster.predict(rows))
    assert warm_up(made) is not None


def test_a_regression_gives_one_number_and_no_probabilities() -> None:
    features, _ = iris()
    booster = trained("regression", iris())
    made = engine(booster)
    assert described(made) == dict.fromkeys(("output-0", "predict"), ("FP64", (ANY,)))
    np.testing.assert_array_equal(ask(made, "output-0", features), booster.predict(features))


def test_two_classes_have_two_probabilities() -> None:
    features, _ = two_kinds()
    booster = trained("binary", two_kinds())
    made = engine(booster)
    ones = np.asarray(booster.predict(features))
    np.testing.assert_array_equal(ask(made, "output-0", features), ones)
    np.testing.assert_array_equal(ask(made, "probabilities", features), np.stack((1 - ones, ones), axis=1))


def test_a_classifier_that_was_saved_answers_as_its_booster() -> None:
    features, kinds = iris()
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(features, kinds)
    made = engine(model.booster_)
    np.testing.assert_allclose(ask(made, "probabilities", features), model.booster_.predict(features))


def test_nothing_is_written_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    features, _ = iris()
    ask(engine(trained("regression", iris(), verbose=1)), "output-0", features)
    assert capfd.readouterr().out == ""


def test_a_folder_is_served_by_its_only_model(tmp_path: Path) -> None:
    features, _ = iris()
    content = trained("regression", iris()).model_to_string().encode()
    made = load(folder(tmp_path / "m", model__txt=content, requirements__txt=b"lightgbm"), EngineOptions())
    assert ask(made, "output-0", features).shape == (150,)
    with pytest.raises(LoadFailed, match=r"2 files \.lgb or model\.txt"):
        load(folder(tmp_path / "m", other__lgb=content), EngineOptions())


def replaced(content: bytes, key: bytes, value: bytes) -> bytes:
    """Return the text with another value of the first `key`."""
    return re.sub(rb"^" + key + rb"=.*$", lambda _: key + b"=" + value, content, count=1, flags=re.MULTILINE)


def first_value(content: bytes, key: bytes, value: bytes) -> bytes:
    """Return the text with another first number in the value of the first `key`."""
    pattern = rb"^(" + key + rb"=)\S+"
    return re.sub(pattern, lambda found: found[1] + value, content, count=1, flags=re.MULTILINE)


def sized(content: bytes) -> bytes:
    """Return the text with `tree_sizes` set to the actual sizes of its trees."""
    begins = [found.start() for found in re.finditer(rb"^Tree=", content, re.MULTILINE)]
    ends = [*begins[1:], content.index(b"end of trees")]
    return replaced(content, b"tree_sizes", b" ".join(b"%d" % (end - at) for at, end in zip(begins, ends, strict=True)))


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"left_child", b"1000000"), (b"left_child", b"0"), (b"left_child", b"-100"), (b"right_child", b"4294967297"),
     (b"right_child", b"1_0"), (b"split_feature", b"4"), (b"split_feature", b"-1"), (b"decision_type", b"1"),
     (b"num_leaves", b"1000"), (b"num_cat", b"1"), (b"num_tree_per_iteration", b"1000"), (b"num_class", b"1000"),
     (b"num_tree_per_iteration", b"0"), (b"max_feature_idx", b"2147483647"), (b"is_linear", b"1")],
)  # fmt: skip
def test_a_tree_that_leads_elsewhere_is_refused(key: bytes, value: bytes) -> None:
    content = trained("multiclass", iris(), num_class=3).model_to_string().encode()
    load(file(sized(content)), EngineOptions())
    with pytest.raises(LoadFailed, match="damaged"):
        load(file(sized(first_value(content, key, value))), EngineOptions())


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"tree_sizes", b"1000000 1 1 1 1"), (b"objective", b"multiclass num_class:1000"), (b"objective", b"num_class:-1"),
     (b"left_child", b"-1"), (b"threshold", b"1"), (b"feature_names", b"a b")],
)  # fmt: skip
def test_a_model_whose_numbers_do_not_fit_is_refused(key: bytes, value: bytes) -> None:
    content = replaced(trained("regression", iris()).model_to_string().encode(), key, value)
    with pytest.raises(LoadFailed, match="damaged"):
        load(file(content if key == b"tree_sizes" else sized(content)), EngineOptions())


def test_a_text_that_others_read_in_another_way_is_refused() -> None:
    content = trained("regression", iris()).model_to_string().encode()
    for odd in (
        content.replace(b"num_class=1", b"num_class=1\nnum_class=1", 1),
        content.replace(b"\n", b"\r\n"),
        content.replace(b"end of trees", b"\0\nend of trees"),
        content.replace(b"left_child=", b"left_child=-1\nleft_child=", 1),
        content.replace(b"num_leaves=", b"no equals sign\nnum_leaves=", 1),
    ):
        with pytest.raises(LoadFailed, match=r"damaged|truncated"):
            load(file(odd), EngineOptions())


def test_trees_of_categories_linear_trees_and_stumps_are_served() -> None:
    features, kinds = iris()
    rounded = features.round()
    forms: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
        (rounded, {"min_data_per_group": 1, "cat_smooth": 0, "max_cat_to_onehot": 1}, {"categorical_feature": [0, 3]}),
        (features, {"linear_tree": True}, {}),
        (features, {"min_data_in_leaf": 1000}, {}),
        (features, {"boosting": "dart"}, {}),
        (features, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, {}),
    ]
    for rows, params, how in forms:
        data = lightgbm.Dataset(rows, kinds, params={"verbose": -1, **params}, **how)
        booster = lightgbm.train({**SOME, "objective": "regression", **params}, data, 3)
        np.testing.assert_array_equal(ask(engine(booster), "output-0", rows), booster.predict(rows))


def test_damaged_models_are_refused_in_words_without_paths() -> None:
    content = trained("regression", iris()).model_to_string().encode()
    end = content.index(b"end of parameters")
    cuts = {int(end * part / 200) for part in range(200)} | {end, end + 5}
    for damaged in [
        *(content[:cut] for cut in sorted(cuts)),
        b"\xff",
        b"tree\nend of parameters\n",
        b"end of parameters",
    ]:
        with pytest.raises(EngineError) as error:
            load(file(damaged), EngineOptions())
        assert "\n" not in str(error.value) and "/" not in str(error.value)
