"""Write what `download.py` of the template huggingface downloads, for a tiny classifier of texts.

python -m tests.support.small_classifier FOLDER, in an environment with the packages onnx and tokenizers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers  # type: ignore[import-not-found, unused-ignore]

WORDS = ["[PAD]", "[UNK]", "lovely", "sad"]


def write(folder: Path) -> None:
    """Write tokenizer, labels and weights: the mean of each word's scores."""
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "NEGATIVE", "1": "POSITIVE"}}))
    scores = np.array([[0.0, 0.0], [0.0, 0.0], [-4.0, 4.0], [4.0, -4.0]], np.float32)
    shape = ["rows", "tokens"]
    mask = helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["scores", "input_ids"], ["words"]),
            mask,
            helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
            helper.make_node("Mul", ["words", "column"], ["counted"]),
            helper.make_node("ReduceSum", ["counted", "middle"], ["logits"], keepdims=0),
        ],
        "classifier",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 2])],
        [
            numpy_helper.from_array(scores, "scores"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "middle"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "classifier.onnx")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
