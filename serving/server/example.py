"""A model's own example: `example.json` beside it, a request as callers send it over the protocol v2, for the warm-up.

It says more than zeros would: which path inputs with a meaning take, of which size they are, and that the model works.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from serving.engines.datatypes import Tensor
from serving.engines.errors import LoadFailed
from serving.engines.folder import only_file
from serving.server.errors import ServingError
from serving.server.protocol_v2 import Codec

if TYPE_CHECKING:
    from serving.storage.artifact import Artifact

FILE: Final = "example.json"


def example_of(artifact: Artifact, codec: Codec) -> Mapping[str, Tensor] | None:
    """The inputs of the example, None without one. Raises LoadFailed when it is no request that the model takes.

    Raises StorageError too.
    """
    if artifact.content is not None or not any(posixpath.basename(name) == FILE for name in artifact.names()):
        return None
    name = only_file(artifact, (FILE,))
    content = artifact.read(name)
    if len(content) > codec.limits.body:
        raise LoadFailed(f"{artifact.uri}: {name} has {len(content)} bytes, and a request {codec.limits.body} at most")
    try:
        return codec.decode(content).inputs
    except ServingError as error:
        raise LoadFailed(f"{artifact.uri}: {name} is no request that the model takes: {error}") from error
