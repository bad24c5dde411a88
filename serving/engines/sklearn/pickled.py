"""scikit-learn models saved by pickle or joblib. Loading one runs code of its author.

The registry requires that the format is named, and allowed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import joblib

from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.folder import only_file
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import make_engine

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "sklearn_pickle"
SUFFIXES: Final = (".pkl", ".pickle", ".joblib")


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """Load the artifact's only file with one of `SUFFIXES`; joblib reads all. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        model = joblib.load(io.BytesIO(artifact.read(name)))
    except Exception as error:  # unpickling runs code of the author
        raise LoadFailed(f"{name} cannot be loaded: {short_reason(error)}") from error
    return make_engine(model, PLATFORM, options)
