"""Codec of `/v1/rerank` and `/v2/rerank`, in the form of Jina and Cohere. Pure.

Sources: Jina's reranker API, Cohere's Rerank API v2, both also in vLLM. The model is a cross-encoder: it has the inputs
`text` and `text_pair`, and the output `score`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, Tensor
from serving.modelserver.base.errors import ContentTooLarge, ModelFailed, ResourceNotFound
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec
from serving.modelserver.openai.errors import InvalidParameter
from serving.modelserver.openai.messages import decode_object, outputs_of, text_input, texts, token_count

PAIR, SCORE, ALL_SCORES = "text_pair", "score", "probabilities"
MAX_DOCUMENTS: Final = 1000
"""Documents of one request, as Cohere advises."""
_PURPOSE: Final = "scores of documents"
_MEMBERS: Final = ("query", "documents", "model", "top_n", "return_documents", "user")
_ENCODE: Final = msgspec.json.Encoder().encode


class RerankRequest(PreparedRequest, frozen=True):
    """A decoded request: the number of results, and the documents' texts if they are returned."""

    top_n: int = 0
    documents: Sequence[str] | None = None


class RerankCodec:
    """Codec of `/v1/rerank` and `/v2/rerank` for the model of the v2 `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> RerankRequest:
        """Return the decoded request. Raises InvalidRequest, ResourceNotFound, ContentTooLarge."""
        codec = self._codec
        outputs = outputs_of(codec, SCORE, _PURPOSE)
        name = text_input(codec, _PURPOSE, PAIR)
        labels = codec.output_spec(ALL_SCORES)
        if codec.specs[PAIR][0].datatype != BYTES or (labels is not None and (labels.shape or (0,))[-1] != 1):
            raise ResourceNotFound(f"the model {codec.name!r} does not compute {_PURPOSE}: it has more than one label")
        request = decode_object(body, codec, json_length, _MEMBERS)
        query = request.get("query")
        if not isinstance(query, str):
            raise InvalidParameter("query", "query is not a string")
        documents = _documents_of(request.get("documents"))
        shown = request.get("return_documents", False)
        if not isinstance(shown, bool):
            raise InvalidParameter("return_documents", "return_documents is not true or false")
        return RerankRequest(
            {name: texts([query] * len(documents)), PAIR: texts(documents)},
            outputs,
            [False] * len(outputs),
            "",
            top_n=_top_n(request, len(documents)),
            documents=documents if shown else None,
        )

    def encode(self, request: RerankRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response: the best documents, the best one first. Raises ModelFailed."""
        scores = results[0]
        if scores.shape != (len(request.inputs[PAIR]),):
            raise ModelFailed(f"the output {SCORE!r} is not one number for each document")
        found: list[dict[str, Any]] = []
        for index in np.argsort(-scores, kind="stable")[: request.top_n].tolist():
            document = {} if request.documents is None else {"document": {"text": request.documents[index]}}
            found.append({"index": index, "relevance_score": float(scores[index]), **document})
        tokens = token_count(results)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return ResponseBody(_ENCODE({"model": self._codec.name, "results": found, "usage": usage}))


def _documents_of(given: Any) -> list[str]:
    """Return the texts of `documents`, which may be objects with `text`. Raises InvalidParameter, ContentTooLarge."""
    if not isinstance(given, list) or not given:
        raise InvalidParameter("documents", "documents is not a list of texts, with at least one")
    if len(given) > MAX_DOCUMENTS:
        raise ContentTooLarge(f"documents has {len(given)} texts, more than {MAX_DOCUMENTS}: send several requests")
    found = [one.get("text") if isinstance(one, dict) else one for one in given]
    documents = [one for one in found if isinstance(one, str)]
    if len(documents) < len(found):
        raise InvalidParameter("documents", 'documents is not a list of strings or of {"text": …}')
    return documents


def _top_n(request: Mapping[str, Any], count: int) -> int:
    given = request.get("top_n", count)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidParameter("top_n", "top_n is not a positive integer")
    return min(given, count)
