"""Tabular models behind a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import lightgbm
import numpy as np
import pytest
import skops.io
import xgboost
from sklearn.ensemble import RandomForestClassifier

from tests.serving.modelserver.conftest import Serve
from tests.support.tabular import iris

CALLERS = 64


def forest() -> bytes:
    """Return a model of the iris data set as a skops file."""
    return bytes(skops.io.dumps(RandomForestClassifier(5, random_state=0).fit(*iris())))


def boosters() -> dict[str, bytes]:
    """Return models with class probabilities, by format."""
    features, kinds = iris()
    params: dict[str, Any] = {"objective": "multiclass", "num_class": 3, "verbose": -1, "num_threads": 1}
    light = lightgbm.train(params, lightgbm.Dataset(features, kinds), 3)
    params = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
    return {
        "lightgbm": light.model_to_string().encode(),
        "xgboost": bytes(xgboost.train(params, xgboost.DMatrix(features, kinds), 3).save_raw("ubj")),
    }


def flower(row: int, **more: Any) -> dict[str, Any]:
    """Return a request with one row."""
    data = iris()[0][row].tolist()
    return {"inputs": [{"name": "input-0", "datatype": "FP32", "shape": [1, 4], "data": data}], **more}


async def test_a_request_that_names_no_output_gets_the_label_alone(serve: Serve) -> None:
    running = await serve(forest(), "--format", "sklearn")
    answer = (await running.post(flower(0))).json
    assert answer["outputs"] == [{"name": "output-0", "datatype": "INT64", "shape": [1], "data": [0]}]
    metadata = (await running.get("/v2/models/m")).json
    assert [output["name"] for output in metadata["outputs"]] == ["output-0", "probabilities", "predict"]
    named = [{"name": "probabilities"}, {"name": "predict"}]
    probabilities, label = (await running.post(flower(0, outputs=named))).json["outputs"]
    assert probabilities["shape"] == [1, 3] and np.argmax(probabilities["data"]) == label["data"][0] == 0


@pytest.mark.parametrize(
    "wrong",
    [{"shape": [1, 3], "data": [1, 2, 3]}, {"shape": [4], "data": [1, 2, 3, 4]}, {"shape": [0, 4], "data": []},
     {"datatype": "INT64", "shape": [1, 4], "data": [1, 2, 3, 4]}, {"shape": [1, 4], "data": ["1", "2", "3", "4"]},
     {"shape": [1, 4], "data": [1e308, 1e308, 1e308, 1e308], "datatype": "FP64"}],
)  # fmt: skip
async def test_what_the_model_does_not_take_is_the_callers_fault_and_the_server_lives(
    serve: Serve, wrong: dict[str, Any]
) -> None:
    running = await serve(forest(), "--format", "sklearn")
    assert (await running.infer({"name": "input-0", "datatype": "FP32", **wrong})).status == 400
    assert (await running.post(flower(0))).status == 200


@pytest.mark.parametrize("name", ["sklearn", "xgboost", "lightgbm"])
async def test_each_of_many_callers_gets_its_own_answer(serve: Serve, name: str) -> None:
    running = await serve(forest() if name == "sklearn" else boosters()[name], "--format", name)
    asked = {"outputs": [{"name": "probabilities"}]}

    async def ask(row: int) -> list[float]:
        data: list[float] = json.loads((await running.post(flower(row, **asked))).body)["outputs"][0]["data"]
        return data

    alone = [await ask(row) for row in range(CALLERS)]
    assert await asyncio.gather(*map(ask, range(CALLERS))) == alone
    assert len({tuple(answer) for answer in alone}) > 1


async def test_the_metadata_has_the_columns_of_a_data_frame(serve: Serve) -> None:
    features, kinds = iris()
    columns = ["a", "b", "c", "d"]
    data = xgboost.DMatrix(features, kinds, feature_names=columns)
    model = xgboost.train({"nthread": 1}, data, 1)
    running = await serve(bytes(model.save_raw("ubj")), "--format", "xgboost")
    expected = {"name": "input-0", "datatype": "FP64", "shape": [-1, 4], "parameters": {"columns": columns}}
    assert (await running.get("/v2/models/m")).json["inputs"] == [expected]
