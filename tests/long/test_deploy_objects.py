"""Models in memory, deployed on a platform of their own: predictions are those of the object in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import knodel
from tests.platform.machine import Machine
from tests.support.models import double
from tests.support.tabular import iris

X, Y = iris()
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])
TREES: dict[str, Any] = {"n_estimators": 3, "n_jobs": 1}


class Doubler:
    """A model that is Python code."""

    inputs = [{"name": "x", "datatype": "FP64", "shape": [-1]}]  # noqa: RUF012  as users write it

    def predict(self, x: Any) -> Any:
        return np.multiply(x, 2)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("platform"))
    made.up()
    made.run("namespace", "default", "--label", "knodel.dev/allow-code=true")
    yield made
    made.run("down")


@pytest.fixture
def client(machine: Machine) -> Iterator[knodel.Client]:
    with knodel.Client(state=machine.state) as made:
        yield made


def test_a_pipeline_over_columns_of_numbers_and_texts(client: knodel.Client) -> None:
    people = pd.DataFrame({"age": [20.0, 30, 40, 50], "city": ["Bern", "Bonn", "Bern", "Bonn"]})
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(people, ["yes", "no", "yes", "no"])

    deployed = client.deploy(model, "people", example=people[:1])
    again = client.deploy(model, "people", example=people[:1])

    assert deployed.ready
    assert again.newest == deployed.newest  # the same bytes are no new version
    answer = client.predict("people", people[["city", "age"]], outputs=["output-0", "probabilities"])
    assert list(answer["output-0"]) == list(model.predict(people))
    np.testing.assert_array_equal(answer["probabilities"], model.predict_proba(people))
    with pytest.raises(knodel.KnodelError, match="'age' is missing, 'Age' is unknown"):
        client.predict("people", people.rename(columns={"age": "Age"}))
    with pytest.raises(knodel.KnodelError, match="there is no row: give at least one"):
        client.predict("people", people[:0])
    with pytest.raises(
        knodel.KnodelError, match=r"rollout is 5: give True, False, or a dict of fields of spec\.rollout"
    ):
        client.deploy(model, "people", rollout=5)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(("name", "model"), [
    ("xgb", xgboost.XGBClassifier(**TREES)), ("lgb", lightgbm.LGBMClassifier(**TREES, verbose=-1)),
])  # fmt: skip
def test_trees_take_the_columns_of_a_frame_in_any_order(name: str, model: Any, client: knodel.Client) -> None:
    model.fit(FRAME, Y)

    client.deploy(model, name, example=FRAME[:2])

    assert list(client.predict(name, FRAME[["d", "c", "b", "a"]])["output-0"]) == list(model.predict(FRAME))
    with pytest.raises(knodel.KnodelError, match="'d' is missing, 'D' is unknown"):
        client.predict(name, FRAME.rename(columns={"d": "D"}))


def test_a_model_of_onnx(client: knodel.Client) -> None:
    client.deploy(onnx.load_from_string(double()), "double", example=np.array([1], np.float32))
    assert client.predict("double", [1.5, 2.0]).to_numpy().tolist() == [3.0, 4.0]


def test_a_class(client: knodel.Client) -> None:
    with pytest.raises(knodel.KnodelError, match="allow it with allow_code=True"):
        client.deploy(Doubler, "doubler")
    client.deploy(Doubler, "doubler", allow_code=True)
    assert client.predict("doubler", {"x": [1.5]}).to_numpy().tolist() == [3.0]


def test_code_needs_the_consent_of_the_namespace_too(machine: Machine, client: knodel.Client) -> None:
    machine.run("namespace", "strict")
    with (
        knodel.Client(state=machine.state, namespace="strict") as strict,
        pytest.raises(knodel.KnodelError, match=r"`knodel namespace strict --label knodel\.dev/allow-code=true "),
    ):
        strict.deploy(Doubler, "doubler", allow_code=True)
