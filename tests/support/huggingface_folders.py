"""Small folders of Hugging Face: a tokenizer that is trained here, and models of a few numbers in ONNX.

Each text model looks up a vector of each token. `Numbers` computes the same with NumPy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from serving.storage.base.artifact import Artifact
from serving.storage.fetch import fetch

SIZE = 4
WORDS = ["the cat sat on the mat", "a good film", "a bad film", "anna lives in berlin", "paris is a city"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROOM = 12  # tokens of one text
Floats = NDArray[np.float32]
TEXT_INPUTS = ("input_ids", "attention_mask")


def tokenizer() -> Tokenizer:
    """A WordPiece tokenizer as BERT's, for texts of `WORDS`."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(WORDS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIAL))
    ids = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids)
    return made


class Numbers:
    """The numbers of the models: `vectors` of the tokens, and `weights` from a vector to `outputs` values."""

    def __init__(self, outputs: int, vocabulary: int = 0) -> None:
        random = np.random.default_rng(7)
        self.tokenizer = tokenizer()
        self.vectors = random.normal(size=(vocabulary or self.tokenizer.get_vocab_size(), SIZE)).astype(np.float32)
        self.weights = random.normal(size=(SIZE, outputs)).astype(np.float32)

    def ids(self, text: str, pair: str | None = None) -> list[int]:
        """The tokens of one text, without padding."""
        ids: list[int] = self.tokenizer.encode(text, pair).ids
        return ids

    def of_text(self, text: str, pair: str | None = None) -> Floats:
        """The logits of a text: of the mean of its tokens' vectors."""
        found: Floats = self.vectors[self.ids(text, pair)].mean(axis=0) @ self.weights
        return found

    def of_tokens(self, text: str) -> Floats:
        """The logits of each token of a text."""
        found: Floats = self.vectors[self.ids(text)] @ self.weights
        return found


def text_graph(
    numbers: Numbers, *, per_token: bool, batch: int | str = "n", names: tuple[str, ...] = TEXT_INPUTS
) -> bytes:
    """The model of `Numbers`: logits of each token, or of the text."""
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["found"])]
    constants = [
        numpy_helper.from_array(numbers.vectors, "vectors"),
        numpy_helper.from_array(numbers.weights, "weights"),
    ]
    pooled = "found"
    if not per_token:
        constants += [numpy_helper.from_array(np.array([2]), "last"), numpy_helper.from_array(np.array([1]), "middle")]
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["weight"]),
            helper.make_node("Mul", ["found", "weight"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "middle"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["weight", "middle"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["pooled"]),
        ]
        pooled = "pooled"
    nodes.append(helper.make_node("MatMul", [pooled, "weights"], ["logits"]))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, "length"]) for name in names]
    shape = ["n", "length", None] if per_token else ["n", None]
    return _model(nodes, inputs, helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape), constants)


def vector_graph(numbers: Numbers, name: str = "last_hidden_state") -> bytes:
    """The model whose output is the vector of each token."""
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], [name])]
    inputs = [helper.make_tensor_value_info(one, TensorProto.INT64, ["n", "length"]) for one in TEXT_INPUTS]
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "length", SIZE])
    return _model(nodes, inputs, output, [numpy_helper.from_array(numbers.vectors, "vectors")])


def image_graph(weights: Floats) -> bytes:
    """The model whose logits are the mean of each colour times `weights`."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["colours"]),
        helper.make_node("Flatten", ["colours"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["n", 3, "h", "w"])]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", None])
    return _model(nodes, inputs, output, [numpy_helper.from_array(weights, "weights")])


def write(folder: Path, files: dict[str, Any]) -> Path:
    """Write the files: bytes as they are, a tokenizer as its JSON, and everything else as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Tokenizer):
            content = content.to_str().encode()
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def artifact(folder: Path) -> Artifact:
    """The folder as the server fetches it."""
    return fetch(folder.as_uri(), "", folder, frozenset())


def config(architecture: str, labels: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A `config.json`."""
    named = {} if labels is None else {"id2label": {str(at): label for at, label in enumerate(labels)}}
    return {
        "architectures": [architecture], "model_type": "bert", "max_position_embeddings": ROOM, "pad_token_id": 0,
        **named, **more,
    }  # fmt: skip


def classifier(numbers: Numbers, labels: list[str], **more: Any) -> dict[str, Any]:
    """The files of a text classification."""
    return {
        "config.json": config("BertForSequenceClassification", labels, **more),
        "tokenizer.json": numbers.tokenizer,
        "onnx/model.onnx": text_graph(numbers, per_token=False),
    }


def embedder(numbers: Numbers, **more: Any) -> dict[str, Any]:
    """The files of a model of embeddings."""
    return {
        "config.json": config("BertModel", **more),
        "tokenizer.json": numbers.tokenizer,
        "model.onnx": vector_graph(numbers),
    }


def _model(nodes: list[Any], inputs: list[Any], output: Any, constants: list[Any]) -> bytes:
    graph = helper.make_graph(nodes, "small", inputs, [output], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())
