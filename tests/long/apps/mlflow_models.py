"""Log models with the real mlflow, and write what its own scoring server answers to the same requests.

    python mlflow_models.py FOLDER [SERVER]

Writes FOLDER/NAME (a model folder) and FOLDER/answers.json: name → list of [content type, body, status, answer].
With the address of a tracking server, one of the models is logged and registered there, and its ids are printed.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import mlflow
import numpy as np
import pandas as pd
import xgboost
from mlflow.exceptions import MlflowException
from mlflow.models import infer_signature
from mlflow.pyfunc import scoring_server
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

warnings.filterwarnings("ignore")
JSON, CSV = "application/json", "text/csv"
REQUIREMENTS = {"pip_requirements": ["mlflow"]}
"""Given, so that mlflow does not load each model in a process of its own to find them."""
FLOWERS, KINDS = load_iris(return_X_y=True, as_frame=True)
MATRIX = FLOWERS.to_numpy()
PEOPLE = pd.DataFrame({"sex": ["f", "m", "f", "m"], "age": [38, 22, 26, 35], "fare": [71.3, 7.3, 7.9, 8.1]})
TEXTS = pd.DataFrame({"text": ["good film", "bad film", "good play", "bad play"]})


class Scaled(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Multiplies the sum of a row by the parameter `factor`."""

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        return model_input.sum(axis=1).to_numpy() * (params or {}).get("factor", 1.0)


def save(folder: Path) -> None:
    """Save the models."""

    def columns(predict: Any, frame: Any = FLOWERS) -> Any:
        return {"signature": infer_signature(frame, predict), "input_example": frame[:2], **REQUIREMENTS}

    skops: dict[str, Any] = {"serialization_format": "skops"}
    by_name = LogisticRegression(max_iter=500).fit(FLOWERS, KINDS)
    by_position = LogisticRegression(max_iter=500).fit(MATRIX, KINDS)
    tensors = {"signature": infer_signature(MATRIX, by_position.predict(MATRIX)), "input_example": MATRIX[:2]}
    mlflow.sklearn.save_model(by_name, folder / "sklearn-columns", **skops, **columns(by_name.predict(FLOWERS)))
    mlflow.sklearn.save_model(by_position, folder / "sklearn-tensor", **skops, **tensors, **REQUIREMENTS)
    mlflow.sklearn.save_model(by_position, folder / "sklearn-unsigned", **skops, **REQUIREMENTS)
    mlflow.sklearn.save_model(
        by_position, folder / "sklearn-proba", **skops, pyfunc_predict_fn="predict_proba", **tensors, **REQUIREMENTS
    )
    forest = RandomForestClassifier(5, random_state=0).fit(FLOWERS, KINDS)
    mlflow.sklearn.save_model(
        forest, folder / "code-sklearn", serialization_format="cloudpickle", **columns(forest.predict(FLOWERS))
    )
    mixed = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough"), LinearRegression()
    ).fit(PEOPLE, [1.0, 0.0, 1.0, 0.0])
    mlflow.sklearn.save_model(mixed, folder / "sklearn-mixed", **skops, **columns(mixed.predict(PEOPLE), PEOPLE))
    spoken = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS["text"], ["yes", "no", "yes", "no"])
    signature = infer_signature(TEXTS["text"].to_numpy(), np.array(["yes"]))
    mlflow.sklearn.save_model(spoken, folder / "sklearn-text", **skops, signature=signature, **REQUIREMENTS)
    wrapper = xgboost.XGBClassifier(n_estimators=5).fit(FLOWERS, KINDS)
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, xgboost.DMatrix(FLOWERS, KINDS), 5)
    mlflow.xgboost.save_model(wrapper, folder / "xgboost-classifier", **columns(wrapper.predict(FLOWERS)))
    mlflow.xgboost.save_model(
        booster, folder / "xgboost-booster", model_format="json", **columns(booster.predict(xgboost.DMatrix(FLOWERS)))
    )
    leaves = lightgbm.train(
        {"objective": "multiclass", "num_class": 3, "verbose": -1}, lightgbm.Dataset(FLOWERS, KINDS), 5
    )
    mlflow.lightgbm.save_model(leaves, folder / "lightgbm-booster", **columns(leaves.predict(FLOWERS)))
    wrapped = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(FLOWERS, KINDS)
    mlflow.lightgbm.save_model(wrapped, folder / "lightgbm-classifier", **columns(wrapped.predict(FLOWERS)))
    graph = to_onnx(by_position, MATRIX[:1].astype(np.float32), options={"zipmap": False})
    mlflow.onnx.save_model(graph, folder / "onnx", signature=infer_signature(MATRIX.astype(np.float32)), **REQUIREMENTS)
    signed = infer_signature(FLOWERS, np.zeros(2), params={"factor": 1.0})
    mlflow.pyfunc.save_model(
        folder / "code-pyfunc", python_model=Scaled(), signature=signed, input_example=(FLOWERS[:2], {"factor": 2.0}),
        **REQUIREMENTS,
    )  # fmt: skip


def requests_for(name: str) -> list[tuple[str, str]]:
    """Requests in each form, and some that do not fit."""
    frame = {"mixed": PEOPLE, "text": TEXTS}.get(name.rpartition("-")[2], FLOWERS[::30])
    split = {"columns": list(frame.columns), "data": frame.to_numpy().tolist()}
    shuffled = frame[frame.columns[::-1]].assign(more=1)
    bodies: list[Any] = [
        {"dataframe_split": split},
        {"dataframe_split": {**split, "index": list(range(len(frame)))}},
        {"dataframe_records": frame.to_dict("records")},
        {"inputs": {name: frame[name].tolist() for name in frame.columns}},
        {"inputs": frame.to_numpy().tolist()},
        {"instances": frame.to_numpy().tolist()},
        {"instances": frame.to_dict("records")},
        {"dataframe_split": split, "params": {"factor": 3.0}},
        {"dataframe_records": shuffled.to_dict("records")},
        {"dataframe_records": [{"wrong": 1}]},
        {"inputs": [], "instances": []},
        {},
        [1],
    ]
    made = [(JSON, json.dumps(body)) for body in bodies]
    return [*made, (JSON, "{"), (CSV, frame.to_csv(index=False)), ("application/xml", "<a/>")]


def answers(folder: Path, name: str) -> list[Any]:
    """What mlflow's scoring server answers."""
    model = mlflow.pyfunc.load_model(str(folder / name), suppress_warnings=True)
    schema, found = model.metadata.get_input_schema(), []
    for kind, body in requests_for(name):
        try:
            response = scoring_server.invocations(body.encode(), kind, model, schema)
            found.append([kind, body, response.status, response.response])
        except MlflowException as error:
            found.append([kind, body, error.get_http_status_code(), error.serialize_as_json()])
        except Exception as error:  # its server answers 500
            found.append([kind, body, 500, str(error)])
    return found


def register(server: str) -> None:
    """Log and register a model twice; print the ids as JSON."""
    mlflow.set_tracking_uri(server)
    mlflow.set_experiment("flowers")
    ids = []
    for rounds in (300, 400):
        model = LogisticRegression(max_iter=rounds).fit(MATRIX, KINDS)
        with mlflow.start_run() as run:
            info = mlflow.sklearn.log_model(
                model, name="model", serialization_format="skops", registered_model_name="churn", **REQUIREMENTS
            )
        ids.append([run.info.run_id, info.model_id])
    mlflow.MlflowClient().set_registered_model_alias("churn", "champion", "1")
    print(json.dumps(ids))


def main() -> None:
    """Save the models and their answers, or register one."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        register(sys.argv[2])
        return
    save(folder)
    names = sorted(one.name for one in folder.iterdir() if one.is_dir())
    (folder / "answers.json").write_text(json.dumps({name: answers(folder, name) for name in names}))


if __name__ == "__main__":
    main()
