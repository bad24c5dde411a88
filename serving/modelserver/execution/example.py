"""A model's own example: `example.json` beside it, a request as callers send it over the protocol v2.

The server warms up with it and shows it in the OpenAPI document. Unlike zeros it takes the path of real inputs, has
their sizes, and proves that the model works.
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
MOST_SHOWN: Final = 64 * 1024  # bytes of an example that the OpenAPI document shows


def read_example(artifact: Artifact, limit: int) -> bytes | None:
    """Return the content of the example, None without one.

    Raises LoadFailed for more than `limit` bytes or for more than one example, StorageError.
    """
    if artifact.content is not None or not any(posixpath.basename(name) == FILE for name in artifact.names()):
        return None
    name = only_file(artifact, (FILE,))
    content = artifact.read(name)
    if len(content) > limit:
        raise LoadFailed(
            f"{artifact.uri}: {name} has {format_size(len(content))}, and a request {format_size(limit)} at most"
        )
    return content


def inputs_of(example: bytes, codec: V2Codec, uri: str) -> Mapping[str, Tensor]:
    """Return the inputs of the example. Raises LoadFailed when it is no request that the model takes."""
    try:
        return codec.decode(example).inputs
    except ServingError as error:
        raise LoadFailed(f"{uri}: {FILE} is no request that the model takes: {error}") from error
