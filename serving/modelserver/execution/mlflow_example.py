"""The input example of an MLflow model folder, as a request of protocol v2 for the warm-up and the OpenAPI document."""

from __future__ import annotations

import logging
import posixpath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.modelserver.base.errors import InvalidRequest, ServingError
from serving.modelserver.codec.json_values import to_flat
from serving.modelserver.codec.protocol_invocations import InvocationsCodec
from serving.modelserver.codec.protocol_v2 import V2Codec

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

MLMODEL: Final = "MLmodel"
FILES: Final = ("serving_input_example.json", "input_example.json")
"""Input examples that MLflow writes: a body of `/invocations`, and the example itself."""
LARGEST: Final = 64 * 1024  # bytes; a larger one would delay the start


def mlflow_example(artifact: Artifact, codec: V2Codec) -> bytes | None:
    """Return the input example of an MLflow folder as a request of protocol v2.

    Returns None when there is none, or when it is not a valid request: MLflow does not require that. Raises
    StorageError.
    """
    names = artifact.names() if artifact.content is None else []
    folder = next((posixpath.dirname(name) for name in names if posixpath.basename(name) == MLMODEL), None)
    found = [] if folder is None else [name for name in (posixpath.join(folder, one) for one in FILES) if name in names]
    if not found:
        return None
    content = artifact.read(found[0])
    try:
        if len(content) > LARGEST:
            raise InvalidRequest("it is larger than 64 KiB")
        body = content if found[0].endswith(FILES[0]) else msgspec.json.encode(_as_invocation(content))
        request = InvocationsCodec(codec).decode(body)
        inputs = [
            {
                "name": name, "datatype": datatype.name, "shape": tensor.shape,
                "data": to_flat(name, datatype, tensor),
            }
            for name, tensor in request.inputs.items()
            for _, datatype in [codec.specs[name]]
        ]  # fmt: skip
        return msgspec.json.encode({"inputs": inputs})
    except (ServingError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        log.info("%s: %s is not used for the warm-up: %s", artifact.uri, found[0], error)
        return None


def _as_invocation(content: bytes) -> dict[str, Any]:
    """Return the request for an `input_example.json`, which older releases of MLflow write alone."""
    value = msgspec.json.decode(content)
    if isinstance(value, dict) and "data" in value:
        return {"dataframe_split": value}
    if isinstance(value, dict) and isinstance(inner := value.get("inputs"), dict) and "data" in inner:
        return {"dataframe_split": inner, "params": value.get("params")}
    return value if isinstance(value, dict) and "inputs" in value else {"inputs": value}
