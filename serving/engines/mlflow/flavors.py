"""Choose the flavor of an MLflow model that is served, and the engine that loads it. Pure.

Flavors whose files run no code come first. Code is needed for models that were saved by cloudpickle or pickle, and for
the flavor `python_function`, which every MLflow model has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from serving.engines.base.errors import LoadFailed
from serving.engines.base.registry import ALLOW_NAMESPACE
from serving.engines.mlflow.mlmodel import FILE, MLmodel, artifact_file

PYFUNC: Final = "python_function"
SKLEARN, XGBOOST, LIGHTGBM, ONNX = "sklearn", "xgboost", "lightgbm", "onnx"
NATIVE: Final = (SKLEARN, XGBOOST, LIGHTGBM, ONNX)
PICKLE: Final = "pickle"
PREDICT: Final = "predict"
PROBA: Final = "predict_proba"
ALLOW: Final = (
    "name the format pyfunc, with --format or modelFormat, and allow the code: "
    f"with {ALLOW_NAMESPACE} on a platform, with --allow-code on your own server"
)
"""How to serve a model that runs code."""
_SKOPS: Final = ".skops"
_PICKLED: Final = (".pkl", ".pickle")
_PATH_KEYS: Final = {SKLEARN: "pickled_model", XGBOOST: "data", LIGHTGBM: "data", ONNX: "data"}
_REMEDIES: Final = {SKLEARN: "log it with serialization_format='skops'", LIGHTGBM: "log its booster_"}


class FlavorFile(msgspec.Struct, frozen=True):
    """The file that is loaded.

    flavor    the flavor of MLflow
    format    the model format of the engine, or `pyfunc`
    file      path inside the folder; "" for `pyfunc`, which loads the folder
    method    the method of the estimator that MLflow calls
    """

    flavor: str
    format: str
    file: str
    method: str = PREDICT

    @property
    def runs_code(self) -> bool:
        """Whether loading the file runs code of the artifact."""
        return self.format in (PICKLE, PYFUNC)

    @property
    def is_wrapper(self) -> bool:
        """Whether the file is a wrapper of LightGBM, saved by skops."""
        return self.flavor == LIGHTGBM and self.file.endswith(_SKOPS)


def choose(model: MLmodel, names: Sequence[str], uri: str, *, allow_code: bool) -> FlavorFile:
    """Return the file to load among the folder's files `names`. Raises LoadFailed when none can be served.

    A file that runs no code has precedence. `allow_code` is whether code of the artifact may run.
    """
    method = model.flavors.get(PYFUNC, {}).get("predict_fn") or PREDICT
    reasons = []
    for flavor in NATIVE:
        if flavor not in model.flavors:
            continue
        made = _native(flavor, model.flavors[flavor], names, uri, str(method))
        fault = _fault(made, model.flavors[flavor])
        if not fault and (allow_code or not made.runs_code):
            return made
        reasons.append(fault or f"{made.file} of flavor {flavor} may run code when it is loaded")
    if PYFUNC in model.flavors and allow_code:
        return FlavorFile(PYFUNC, PYFUNC, "")
    found = ", ".join(sorted(model.flavors))
    if reasons:
        saved = next((_REMEDIES[flavor] for flavor in model.flavors if flavor in _REMEDIES), "")
        raise LoadFailed(f"{uri}: {'; '.join(reasons)}: {saved + ', or ' if saved else ''}{ALLOW}")
    known = f"the flavors {', '.join(NATIVE)} are served"
    if PYFUNC in model.flavors:
        raise LoadFailed(f"{uri}: {FILE} has the flavors {found}: {known}; to run the code of {PYFUNC}, {ALLOW}")
    raise LoadFailed(f"{uri}: {FILE} has the flavors {found}: {known}, and {PYFUNC} where code is allowed")


def _native(flavor: str, settings: Mapping[str, Any], names: Sequence[str], uri: str, method: str) -> FlavorFile:
    """Return the file of a flavor with the engine that loads it."""
    file = artifact_file(settings, _PATH_KEYS[flavor], names, flavor, uri)
    kind = flavor
    if flavor == SKLEARN:
        kind = SKLEARN if file.endswith(_SKOPS) else PICKLE
    elif flavor == LIGHTGBM and file.endswith(_PICKLED):  # a wrapper
        kind = PICKLE
    return FlavorFile(flavor, kind, file, method)


def _fault(made: FlavorFile, settings: Mapping[str, Any]) -> str:
    """Return why the engine would not predict as MLflow does; "" when it does."""
    if made.format == PICKLE and settings.get("code"):
        return f"flavor {made.flavor} needs code_paths of the artifact"
    if made.method not in (PREDICT, PROBA) or (made.method == PROBA and made.flavor not in (SKLEARN, LIGHTGBM)):
        return (
            f"flavor {made.flavor} has predict_fn {made.method[:40]!r}, and only predict and predict_proba are served"
        )
    return ""
