"""The metadata of a model: names, datatypes and shapes of its inputs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.client.errors import ClientError
from serving.client.http import FOREIGN
from serving.engines.base.engine import TensorSpec

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError, RecursionError)
"""What reading a JSON value of another shape than expected may raise."""


@dataclass(frozen=True)
class ModelMetadata:
    """The inputs of a model, and the `revisions` that have answered.

    `is_stale`: a revision answered that is newer than the metadata, so it is read again before the next request.
    """

    inputs: tuple[TensorSpec, ...]
    revisions: frozenset[str] = frozenset()
    is_stale: bool = False


def metadata_from(name: str, content: bytes, revision: str) -> ModelMetadata:
    """Read the response of `/v2/models/NAME`. Raises ClientError."""
    try:
        value = json.loads(content)
        inputs = tuple(_spec(one) for one in value["inputs"])
    except MALFORMED as error:
        raise ClientError(f"the response of model {name} is not model metadata: {FOREIGN}") from error
    return ModelMetadata(inputs, frozenset({revision} if revision else ()))


def _spec(value: Mapping[str, Any]) -> TensorSpec:
    columns = (value.get("parameters") or {}).get("columns") or ()
    shape = tuple(int(size) for size in value["shape"])
    return TensorSpec(str(value["name"]), str(value["datatype"]), shape, tuple(map(str, columns)))
