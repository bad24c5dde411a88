"""scikit-learn models saved by skops: a file that says which types it is made of, checked before any is made.

Nothing but these types is ever loaded: there is no way from here to pickle.
"""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any, Final

import skops.io

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.reasons import reason_of
from serving.engines.base.registry import OWN_SERVER
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import engine_of, parts_of
from serving.engines.sklearn.vetting import TRUSTED, vet

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "sklearn_skops"
SUFFIX: Final = ".skops"
MOST_INFLATED: Final = 100  # times the file's size; arrays of real models shrink to a tenth at most
_MOST_NAMED: Final = 5  # types in a message


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """The model of the artifact's only `*.skops` file. Raises LoadFailed, StorageError."""
    name = only_file(artifact, (SUFFIX,))
    content = artifact.read(name)
    try:
        _refuse_bomb(name, content)
        model = skops.io.loads(content, trusted=_trusted(name, content, options))
        vet(parts_of(model))
    except LoadFailed:
        raise
    except Exception as error:  # whatever a damaged file makes of skops and of the types in it
        raise LoadFailed(f"skops cannot load {name}: {reason_of(error)}") from error
    return engine_of(model, PLATFORM, options)


def _refuse_bomb(name: str, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        inflated = sum(entry.file_size for entry in archive.infolist())
    if inflated > MOST_INFLATED * len(content):
        raise LoadFailed(
            f"{name} would inflate to more than {MOST_INFLATED} times its size: save it without compression"
        )


def _trusted(name: str, content: bytes, options: EngineOptions) -> list[str]:
    """The types to load on top of those of skops. Raises LoadFailed for types that nobody vouches for."""
    found: list[Any] = skops.io.get_untrusted_types(data=content)
    unknown = sorted(set(found) - TRUSTED)
    if unknown and not options.allow_code:
        shown = ", ".join(unknown[:_MOST_NAMED]) + (", …" if len(unknown) > _MOST_NAMED else "")
        raise LoadFailed(f"{name} has types that may run code ({shown}): save it as ONNX, or {OWN_SERVER}")
    return found
