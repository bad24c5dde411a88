"""A text classifier: the tokenizer of the Hugging Face Hub, and its model as ONNX."""

import json

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

LONGEST = 512  # tokens of a text; longer ones are cut


class Model:
    """The class that Knodel serves."""

    inputs = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    outputs = [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "score", "datatype": "FP32", "shape": [-1]},
    ]
    thread_safe = True

    def load(self, folder):
        """Read tokenizer, labels and weights."""
        names = json.loads((folder / "config.json").read_text())["id2label"]
        self.labels = np.array([names[str(index)] for index in range(len(names))], dtype=object)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding()
        self.session = onnxruntime.InferenceSession(folder / "classifier.onnx", providers=["CPUExecutionProvider"])
        self.names = {one.name for one in self.session.get_inputs()}

    def predict(self, text):
        """Return the most probable label of each text, and its probability."""
        rows = self.tokenizer.encode_batch([one.decode() for one in text])
        tensors = {
            "input_ids": [row.ids for row in rows],
            "attention_mask": [row.attention_mask for row in rows],
            "token_type_ids": [row.type_ids for row in rows],
        }
        given = {name: np.array(value, np.int64) for name, value in tensors.items() if name in self.names}
        logits = self.session.run(None, given)[0]
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = weights / weights.sum(axis=1, keepdims=True)
        best = scores.argmax(axis=1)
        return {"label": self.labels[best], "score": scores[np.arange(len(best)), best].astype(np.float32)}
