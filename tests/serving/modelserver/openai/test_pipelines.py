"""OpenAI's embeddings and Cohere's rerank, and the other protocols, for folders of Hugging Face on a real server."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, ModelFailed, ResourceNotFound
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.endpoints.pipelines import EMBEDDINGS_PATHS, RERANK_PATHS
from serving.modelserver.observe.middleware import OPENAI
from serving.modelserver.observe.response_stats import outcome_of
from serving.modelserver.openai.embeddings import MAX_TEXTS, EmbeddingsCodec
from serving.modelserver.openai.rerank import MAX_DOCUMENTS, RerankCodec
from tests.serving.modelserver.conftest import Running, Serve
from tests.support.huggingface_folders import WORDS, Numbers, classifier, embedder, write

TEXT = TensorSpec("text", "BYTES", (ANY,))
PAIR = TensorSpec("text_pair", "BYTES", (ANY,))
SCORE = TensorSpec("score", "FP32", (ANY,))
EMBEDDING = TensorSpec("embedding", "FP32", (ANY, 2))
QUERY, DOCUMENTS = "a good film", ["the cat sat", "a bad film", "paris is a city"]


def codec(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...], optional: tuple[str, ...] = ()) -> V2Codec:
    signature = Signature("test", inputs, outputs, optional_inputs=frozenset(optional))
    return V2Codec("m", "m-00001", signature, ServerLimits())


EMBEDDER = EmbeddingsCodec(codec(TEXT, outputs=(EMBEDDING,)))
RERANKER = RerankCodec(codec(TEXT, PAIR, outputs=(SCORE,), optional=("text_pair",)))


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


async def served(serve: Serve, folder: Path, files: dict[str, Any], *options: str) -> Running:
    return await serve(b"", "--storage-uri", write(folder / "hf", files).as_uri(), *options)


def expected(numbers: Numbers, *texts: str) -> np.ndarray[Any, Any]:
    means = np.array([numbers.vectors[numbers.ids(text)].mean(axis=0) for text in texts])
    return means / np.linalg.norm(means, axis=1, keepdims=True)  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", EMBEDDINGS_PATHS)
async def test_embeddings_of_a_folder(path: str, serve: Serve, tmp_path: Path) -> None:
    numbers = Numbers(1)
    running = await served(serve, tmp_path, embedder(numbers))
    answer = await running.post({"input": WORDS, "model": "m", "user": "u"}, path)
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    count = sum(len(numbers.ids(text)) for text in WORDS)
    assert answer.json["object"] == "list" and answer.json["model"] == "m"
    assert answer.json["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert [(one["object"], one["index"]) for one in answer.json["data"]] == [("embedding", at) for at in range(5)]
    np.testing.assert_allclose([one["embedding"] for one in answer.json["data"]], expected(numbers, *WORDS), rtol=1e-5)

    answer = await running.post({"input": "a film", "encoding_format": "base64", "dimensions": None}, path)
    (one,) = answer.json["data"]
    found = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
    np.testing.assert_allclose(found, expected(numbers, "a film")[0], rtol=1e-5)


async def test_the_other_protocols_have_the_same_vectors(serve: Serve, tmp_path: Path) -> None:
    numbers = Numbers(1)
    running = await served(serve, tmp_path, embedder(numbers, is_matryoshka=True))
    v1 = await running.post({"instances": ["a film", "a cat"]}, "/v1/models/m:predict")
    np.testing.assert_allclose(v1.json["predictions"], expected(numbers, "a film", "a cat"), rtol=1e-5)
    v2 = await running.infer({"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a film", "a cat"]})
    (output,) = v2.json["outputs"]
    assert output["name"] == "embedding" and output["shape"] == [2, 4]
    short = await running.post({"input": ["a film", "a cat"], "dimensions": 2}, EMBEDDINGS_PATHS[0])
    assert [len(one["embedding"]) for one in short.json["data"]] == [2, 2]
    assert (await running.get("/v2/models/m")).json["platform"] == "huggingface_feature-extraction"


async def test_requests_that_share_a_batch_get_their_own_rows(serve: Serve, tmp_path: Path) -> None:
    numbers = Numbers(1)
    running = await served(serve, tmp_path, embedder(numbers), "--max-batch-size", "8")
    sent = [WORDS[:2], WORDS[2:], ["a film"]]
    answers = await asyncio.gather(*(running.post({"input": texts}, EMBEDDINGS_PATHS[0]) for texts in sent))
    for texts, answer in zip(sent, answers, strict=True):
        found = [one["embedding"] for one in answer.json["data"]]
        np.testing.assert_allclose(found, expected(numbers, *texts), rtol=1e-5)


@pytest.mark.parametrize("path", RERANK_PATHS)
async def test_documents_are_ranked(path: str, serve: Serve, tmp_path: Path) -> None:
    numbers = Numbers(1)
    running = await served(serve, tmp_path, classifier(numbers, ["relevance"]))
    answer = await running.post({"model": "m", "query": QUERY, "documents": DOCUMENTS}, path)
    logits = np.array([numbers.of_text(QUERY, one)[0] for one in DOCUMENTS])
    scores = 1 / (1 + np.exp(-logits))
    order = np.argsort(-scores).tolist()
    count = sum(len(numbers.ids(QUERY, one)) for one in DOCUMENTS)
    assert answer.status == 200 and answer.json["usage"]["total_tokens"] == count
    assert answer.json["results"] == [
        {"index": at, "relevance_score": pytest.approx(scores[at], rel=1e-5)} for at in order
    ]
    documents = [{"text": one} for one in DOCUMENTS]
    answer = await running.post({"query": QUERY, "documents": documents, "top_n": 1, "return_documents": True}, path)
    (best,) = answer.json["results"]
    assert best["index"] == order[0] and best["document"] == {"text": DOCUMENTS[order[0]]}


async def test_errors_have_the_form_of_openai(serve: Serve, tmp_path: Path) -> None:
    running = await served(serve, tmp_path, embedder(Numbers(1)))
    path = EMBEDDINGS_PATHS[0]
    answer = await running.post({"input": "a", "model": "gpt"}, path)
    assert answer.status == 404 and answer.json == {
        "error": {
            "message": "the model 'gpt' is not served here: use 'm'", "type": "invalid_request_error",
            "param": "model", "code": "model_not_found",
        }
    }  # fmt: skip
    answer = await running.post({"input": 1}, path)
    assert answer.status == 400 and answer.json["error"] == {
        "message": "input is not a string or a list of strings, with at least one", "type": "invalid_request_error",
        "param": "input", "code": None,
    }  # fmt: skip
    answer = await running.post({"query": "a", "documents": ["b"]}, RERANK_PATHS[0])
    assert answer.status == 404 and "does not compute scores of documents" in answer.json["error"]["message"]
    answer = await running.post(b"{", path)
    assert answer.status == 400 and answer.json["error"]["type"] == "invalid_request_error"
    answer = await running.get(path)
    assert answer.status == 405 and answer.headers["allow"] == "POST"


async def test_a_model_of_numbers_has_no_such_paths(double: Running) -> None:
    for path in (*EMBEDDINGS_PATHS, *RERANK_PATHS):
        answer = await double.post({"input": "a"}, path)
        assert answer.status == 404 and "the model 'm' does not compute" in answer.json["error"]["message"]


async def test_a_server_that_is_not_ready_says_so_in_the_form_of_openai(serve: Serve) -> None:
    answer = await (await serve(None)).post({"input": "a"}, EMBEDDINGS_PATHS[0])
    assert answer.status == 503 and answer.json["error"]["type"] == "server_error" and "retry-after" in answer.headers


@pytest.mark.parametrize(
    ("members", "param", "reason"),
    [
        ({}, "input", "input is not a string or a list of strings"),
        ({"input": []}, "input", "with at least one"),
        ({"input": {"text": "a"}}, "input", "not a string or a list"),
        ({"input": ["a", 1]}, "input", "not a string or a list of strings"),
        ({"input": [1, 2]}, "input", "token ids, .*: send strings"),
        ({"input": [[1], [2]]}, "input", "token ids, .*: send strings"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "not 'float' or 'base64'"),
        ({"input": "a", "dimensions": 2}, "dimensions", "vectors of one size: omit dimensions"),
        ({"input": "a", "model": 3}, "model", "model is not a string"),
        ({"input": "a", "stream": True}, "stream", "unknown parameter 'stream': use input, model"),
    ],
)
def test_an_invalid_request_of_embeddings_names_the_parameter(members: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        EMBEDDER.decode(body(**members))
    assert caught.value.param == param  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("members", "param", "reason"),
    [
        ({"documents": ["a"]}, "query", "query is not a string"),
        ({"query": "a"}, "documents", "not a list of texts"),
        ({"query": "a", "documents": []}, "documents", "with at least one"),
        ({"query": "a", "documents": [1]}, "documents", "not a list of strings or of"),
        ({"query": "a", "documents": [{"image": "x"}]}, "documents", "not a list of strings or of"),
        ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n", "not a positive integer"),
        ({"query": "a", "documents": ["b"], "top_n": True}, "top_n", "not a positive integer"),
        ({"query": "a", "documents": ["b"], "return_documents": 1}, "return_documents", "not true or false"),
    ],
)
def test_an_invalid_request_of_rerank_names_the_parameter(members: dict[str, Any], param: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        RERANKER.decode(body(**members))
    assert caught.value.param == param  # type: ignore[attr-defined]


def test_requests_are_bounded_and_have_no_name_twice() -> None:
    with pytest.raises(ContentTooLarge, match="2049 texts, more than 2048"):
        EMBEDDER.decode(body(input=["a"] * (MAX_TEXTS + 1)))
    with pytest.raises(ContentTooLarge, match="1001 texts, more than 1000"):
        RERANKER.decode(body(query="a", documents=["b"] * (MAX_DOCUMENTS + 1)))
    with pytest.raises(InvalidRequest, match="'input' is given twice"):
        EMBEDDER.decode(b'{"input": "a", "input": "b"}')
    with pytest.raises(InvalidRequest, match="must be JSON: send binary data to /v2"):
        EMBEDDER.decode(b"{}", 2)
    with pytest.raises(ResourceNotFound, match="is not served here: use 'm'"):
        RERANKER.decode(body(query="a", documents=["b"], model="other"))


def test_dimensions_are_an_input_of_the_models_that_have_it() -> None:
    made = EmbeddingsCodec(
        codec(TEXT, TensorSpec("dimensions", "INT64", (ANY,)), outputs=(EMBEDDING,), optional=("dimensions",))
    )
    assert made.decode(body(input=["a", "b"], dimensions=3)).inputs["dimensions"].tolist() == [3, 3]
    for wrong in (0, -1, True, "3", 1 << 40):
        with pytest.raises(InvalidRequest, match="dimensions is not a positive integer"):
            made.decode(body(input="a", dimensions=wrong))


def test_models_for_something_else_are_refused() -> None:
    two = TensorSpec("probabilities", "FP32", (ANY, 2))
    for made, reason in (
        (codec(TEXT, PAIR, outputs=(SCORE, two)), "more than one label"),
        (codec(TEXT, outputs=(SCORE,)), "its inputs are not texts"),
        (codec(TEXT, PAIR, outputs=(EMBEDDING,)), "no output 'score'"),
    ):
        with pytest.raises(ResourceNotFound, match=reason):
            RerankCodec(made).decode(body(query="a", documents=["b"]))
    numbers = codec(TensorSpec("x", "FP32", (ANY,)), outputs=(EMBEDDING,))
    with pytest.raises(ResourceNotFound, match="its inputs are not texts"):
        EmbeddingsCodec(numbers).decode(body(input="a"))


def test_results_of_another_shape_are_the_models_fault() -> None:
    request = EMBEDDER.decode(body(input=["a", "b"]))
    for wrong in (np.zeros((1, 2), np.float32), np.zeros(2, np.float32)):
        with pytest.raises(ModelFailed, match="not one vector for each text"):
            EMBEDDER.encode(request, [wrong])
    with pytest.raises(ModelFailed, match="not one number for each document"):
        RERANKER.encode(RERANKER.decode(body(query="a", documents=["b"])), [np.zeros((1, 1), np.float32)])
    answer = json.loads(EMBEDDER.encode(request, [np.ones((2, 2), np.float32)]).body)
    assert answer["usage"] == {"prompt_tokens": 0, "total_tokens": 0}  # a model that does not count tokens


def test_responses_count_for_the_judge() -> None:
    assert [outcome_of(OPENAI, code) for code in (200, 400, 404, 500)] == ["timed", "error", "other", "error"]


async def test_an_image_model_takes_base64_by_each_protocol(serve: Serve, tmp_path: Path) -> None:
    from tests.serving.engines.test_huggingface import image_files, picture

    running = await served(serve, tmp_path, image_files())
    sent = base64.b64encode(picture((250, 0, 0))).decode()
    v1 = await running.post({"instances": [{"b64": sent}, {"b64": sent}]}, "/v1/models/m:predict")
    assert [one["label"] for one in v1.json["predictions"]] == ["red", "red"]
    v2 = await running.infer({"name": "image", "datatype": "BYTES", "shape": [1], "data": [sent]})
    assert v2.json["outputs"][0]["data"] == ["red"]


async def test_v1_takes_values_of_the_only_required_input(serve: Serve, tmp_path: Path) -> None:
    """As KServe's Hugging Face server: `text_pair` is optional."""
    running = await served(serve, tmp_path, classifier(Numbers(2), ["a", "b"]))
    plain = await running.post({"instances": ["a film", "a cat"]}, "/v1/models/m:predict")
    named = await running.post({"instances": [{"text": "a film"}, {"text": "a cat"}]}, "/v1/models/m:predict")
    assert (
        plain.status == 200 and plain.json == named.json and plain.json["predictions"][0].keys() == {"label", "score"}
    )
