"""Codec of OpenAI's `/v1/embeddings`. Pure.

Source: the OpenAPI document of OpenAI (`CreateEmbeddingRequest`). The model has one input, a vector of texts, and the
output `embedding`. `dimensions` is an input that only models have whose vectors may be shortened.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.modelserver.base.errors import ContentTooLarge, ModelFailed
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec
from serving.modelserver.openai.errors import InvalidParameter
from serving.modelserver.openai.messages import decode_object, outputs_of, text_input, texts, token_count

OUTPUT: Final = "embedding"
DIMENSIONS: Final = "dimensions"
MAX_TEXTS: Final = 2048
"""Texts of one request, OpenAI's own limit."""
_PURPOSE: Final = "embeddings"
_FLOAT, _BASE64 = "float", "base64"
_MEMBERS: Final = ("input", "model", "encoding_format", DIMENSIONS, "user")
_MATRIX: Final = 2
_ENCODE: Final = msgspec.json.Encoder().encode


class EmbeddingsRequest(PreparedRequest, frozen=True):
    """A decoded request; `base64` is whether vectors are sent as little-endian FP32 in base64."""

    base64: bool = False


class EmbeddingsCodec:
    """Codec of `/v1/embeddings` for the model of the v2 `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> EmbeddingsRequest:
        """Return the decoded request. Raises InvalidRequest, ResourceNotFound, ContentTooLarge."""
        codec = self._codec
        outputs = outputs_of(codec, OUTPUT, _PURPOSE)
        name = text_input(codec, _PURPOSE)
        request = decode_object(body, codec, json_length, _MEMBERS)
        sent = _texts_of(request.get("input"))
        encoding = request.get("encoding_format", _FLOAT)
        if encoding not in (_FLOAT, _BASE64):
            raise InvalidParameter("encoding_format", f"encoding_format is not {_FLOAT!r} or {_BASE64!r}")
        inputs = {name: texts(sent), **self._dimensions(request, len(sent))}
        return EmbeddingsRequest(inputs, outputs, [False] * len(outputs), "", base64=encoding == _BASE64)

    def encode(self, request: EmbeddingsRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response. Raises ModelFailed."""
        vectors = results[0]
        if vectors.ndim != _MATRIX or len(vectors) != len(next(iter(request.inputs.values()))):
            raise ModelFailed(f"the output {OUTPUT!r} is not one vector for each text")
        made = np.ascontiguousarray(vectors, "<f4")
        shown = [base64.b64encode(row.tobytes()).decode() for row in made] if request.base64 else made.tolist()
        tokens = token_count(results)
        data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(shown)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return ResponseBody(_ENCODE({"object": "list", "data": data, "model": self._codec.name, "usage": usage}))

    def _dimensions(self, request: Mapping[str, Any], count: int) -> dict[str, Tensor]:
        """Return the input `dimensions`, if the request has it. Raises InvalidParameter."""
        wanted = request.get(DIMENSIONS)
        if wanted is None:
            return {}
        if DIMENSIONS not in self._codec.specs:
            raise InvalidParameter(
                DIMENSIONS, f"the model {self._codec.name!r} has vectors of one size: omit {DIMENSIONS}"
            )
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 < wanted < 1 << 31:
            raise InvalidParameter(DIMENSIONS, f"{DIMENSIONS} is not a positive integer")
        return {DIMENSIONS: np.full(count, wanted, np.int64)}


def _texts_of(given: Any) -> list[str]:
    """Return the texts of `input`. Raises InvalidParameter, ContentTooLarge."""
    if isinstance(given, str):
        return [given]
    if given is None or not isinstance(given, list) or not given:
        raise InvalidParameter("input", "input is not a string or a list of strings, with at least one")
    if len(given) > MAX_TEXTS:
        raise ContentTooLarge(f"input has {len(given)} texts, more than {MAX_TEXTS}: send several requests")
    if all(isinstance(one, str) for one in given):
        return given
    if isinstance(given[0], int | list):
        raise InvalidParameter(
            "input", "input has token ids, which are not those of this model's tokenizer: send strings"
        )
    raise InvalidParameter("input", "input is not a string or a list of strings")
