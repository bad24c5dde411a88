"""The LightGBM engine with models trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from serving.engines.base import ANY, EngineOptions
from serving.engines.datatypes import Tensor
from serving.engines.errors import EngineError, LoadFailed
from serving.engines.lightgbm import load
from serving.engines.tabular import TabularEngine
from serving.engines.warmup import warm_up
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
