"""scikit-learn models saved by skops, whose files list their types: these are checked before any object is created.

No other types are loaded, and no pickles.
"""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any, Final

import skops.io

from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.folder import only_file
from serving.engines.base.registry import OWN_SERVER
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import make_engine, parts_of
from serving.engines.sklearn.vetting import TRUSTED, vet

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "sklearn_skops"
SUFFIX: Final = ".skops"
MAX_INFLATED: Final = 100  # times the file's size; compression makes arrays of real models at most ten times smaller
_MAX_LISTED: Final = 5  # types listed in a message


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """Load the artifact's only `*.skops` file. Raises LoadFailed, StorageError."""
    name = only_file(artifact, (SUFFIX,))
    content = artifact.read(name)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
        if inflated > MAX_INFLATED * len(content):
            raise LoadFailed(
                f"{name} would inflate to more than {MAX_INFLATED} times its size: save it without compression"
            )
        model = skops.io.loads(content, trusted=_trusted(name, content, options))
        vet(parts_of(model))
    except LoadFailed:
        raise
    except Exception as error:  # a damaged file causes errors of many types
        raise LoadFailed(f"skops cannot load {name}: {short_reason(error)}") from error
    return make_engine(model, PLATFORM, options)


def _trusted(name: str, content: bytes, options: EngineOptions) -> list[str]:
    """Return the types to load beyond those that skops trusts. Raises LoadFailed for types that are not vetted."""
    found: list[Any] = skops.io.get_untrusted_types(data=content)
    unknown = sorted(set(found) - TRUSTED)
    if unknown and not options.allow_code:
        shown = ", ".join(unknown[:_MAX_LISTED]) + (", …" if len(unknown) > _MAX_LISTED else "")
        raise LoadFailed(f"{name} has types that may run code ({shown}): save it as ONNX, or {OWN_SERVER}")
    return found
