"""Download a text classifier of the Hugging Face Hub into the folder `model`.

The repository must have an ONNX export, as those of https://huggingface.co/onnx-community do. `optimum-cli export onnx`
makes one of any other model.
"""

import shutil
from pathlib import Path

from huggingface_hub import hf_hub_download

REPOSITORY = "Xenova/distilbert-base-uncased-finetuned-sst-2-english"
FILES = {
    "config.json": "config.json",
    "tokenizer.json": "tokenizer.json",
    "onnx/model_quantized.onnx": "classifier.onnx",
}
FOLDER = Path(__file__).parent / "model"


def main() -> None:
    """Download each file, and store it under the name that `model/model.py` reads."""
    for name, stored in FILES.items():
        shutil.copyfile(hf_hub_download(REPOSITORY, name), FOLDER / stored)
        print(f"{name} of {REPOSITORY} is stored in {FOLDER / stored}")


if __name__ == "__main__":
    main()
