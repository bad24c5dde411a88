"""The example request of a model: the file `example.json` beside it, a request body of protocol v2.

The server uses it for the warm-up and shows it in the OpenAPI document. Unlike zeros, the example exercises the code
paths and sizes of real inputs, and proves that the model works. An MLflow folder has its input example instead
(`mlflow_example`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from clusters.base.sizes import format_size
from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.modelserver.base.errors import ServingError
from serving.modelserver.codec.protocol_v2 import V2Codec

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

FILE: Final = "example.json"
MAX_SHOWN: Final = 64 * 1024  # bytes; the OpenAPI document does not show a larger example


def read_example(artifact: Artifact, limit: int) -> bytes | None:
    """Return the content of the example, or None when there is none.

    Raises StorageError, and LoadFailed for more than one example or one larger than `limit` bytes.
    """
    if artifact.content is not None or not any(posixpath.basename(name) == FILE for name in artifact.names()):
        return None
    name = only_file(artifact, (FILE,))
    content = artifact.read(name)
    if len(content) > limit:
        raise LoadFailed(
            f"{artifact.uri}: {name} has {format_size(len(content))}, more than the {format_size(limit)} of a request: "
            "use a smaller example"
        )
    return content


def decode_example(example: bytes, codec: V2Codec, uri: str) -> Mapping[str, Tensor]:
    """Return the inputs of the example. Raises LoadFailed when it is not a valid request for the model."""
    try:
        return codec.decode(example).inputs
    except ServingError as error:
        raise LoadFailed(f"{uri}: {FILE} is not a valid request for the model: {error}") from error
