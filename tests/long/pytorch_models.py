"""Write small models of transformers with random weights, each as safetensors and as its ONNX export:

    python -m tests.long.pytorch_models FOLDER

FOLDER/TASK/torch and FOLDER/TASK/onnx, in a process that may import PyTorch.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from tests.support.huggingface_folders import ROOM, tokenizer, write

SIDE: Final = 8  # pixels of an image
TEXT_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
ENTITIES: Final = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}
SMALL: Final[dict[str, Any]] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "attn_implementation": "eager", "initializer_range": 0.5,
}  # fmt: skip
PROCESSOR: Final = {
    "size": {"height": SIDE, "width": SIDE}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.4],
}  # fmt: skip


def bert(**more: Any) -> Any:
    """Return a configuration for the tokenizer of the tests."""
    words = tokenizer().get_vocab_size()
    return transformers.BertConfig(vocab_size=words, max_position_embeddings=ROOM, pad_token_id=0, **SMALL, **more)


def models() -> dict[str, Any]:
    """Return a model for each task."""
    image = transformers.ViTConfig(image_size=SIDE, patch_size=4, id2label={0: "red", 1: "green"}, **SMALL)
    return {
        "text-classification": transformers.BertForSequenceClassification(bert(num_labels=3)),
        "rerank": transformers.BertForSequenceClassification(bert(num_labels=1)),
        "token-classification": transformers.BertForTokenClassification(bert(id2label=ENTITIES)),
        "fill-mask": transformers.BertForMaskedLM(bert()),
        "feature-extraction": transformers.BertModel(bert(), add_pooling_layer=False),
        "image-classification": transformers.ViTForImageClassification(image),
    }


class Exported(torch.nn.Module):  # type: ignore[misc]
    """A model with its text or image inputs alone, and its first output."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        """Return the logits, or the vectors of the tokens."""
        return self.model(**dict(zip(self.names, inputs, strict=True)))[0]


def export(model: Any, path: Path) -> None:
    """Write the ONNX export of a model, with dynamic dimensions."""
    is_image = model.config.model_type == "vit"
    names = ("pixel_values",) if is_image else TEXT_INPUTS
    given = torch.zeros(2, 3, SIDE, SIDE) if is_image else torch.ones(2, 5, dtype=torch.long)
    axes = {0: "batch"} if is_image else {0: "batch", 1: "length"}
    output = "last_hidden_state" if type(model).__name__ == "BertModel" else "logits"
    path.parent.mkdir(parents=True)
    torch.onnx.export(
        Exported(model, names), (given,) * len(names), str(path), dynamo=False, opset_version=17,
        input_names=list(names), output_names=[output], dynamic_axes=dict.fromkeys((*names, output), axes),
    )  # fmt: skip


def main(folder: Path) -> None:
    """Write all of them."""
    torch.manual_seed(3)
    for task, model in models().items():
        place = folder / task / "torch"
        model.eval().save_pretrained(place)
        write(place, {"tokenizer.json": tokenizer(), "preprocessor_config.json": PROCESSOR})
        shutil.copytree(place, folder / task / "onnx", ignore=shutil.ignore_patterns("*.safetensors"))
        export(model, folder / task / "onnx" / "onnx" / "model.onnx")
    half = models()["text-classification"].eval().to(torch.bfloat16)
    half.save_pretrained(folder / "shards" / "torch", max_shard_size="10KB")
    write(folder / "shards" / "torch", {"tokenizer.json": tokenizer()})
    small = {name: value for name, value in SMALL.items() if name != "attn_implementation"}
    decoder = transformers.LlamaConfig(vocab_size=tokenizer().get_vocab_size(), num_labels=2, **small)
    transformers.LlamaForSequenceClassification(decoder).save_pretrained(folder / "decoder" / "torch")
    write(folder / "decoder" / "torch", {"tokenizer.json": tokenizer()})


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # that this exporter is the older one
    main(Path(sys.argv[1]))
