"""scikit-learn models saved by pickle or joblib: loading one runs whatever its author wrote.

The registry lets nothing come here that was not named, and allowed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import joblib

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.reasons import reason_of
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import engine_of

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "sklearn_pickle"
SUFFIXES: Final = (".pkl", ".pickle", ".joblib")


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """The model of the artifact's only file of either kind: joblib reads both. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        model = joblib.load(io.BytesIO(artifact.read(name)))
    except Exception as error:  # it runs code of others
        raise LoadFailed(f"{name} cannot be loaded: {reason_of(error)}") from error
    return engine_of(model, PLATFORM, options)
