"""Download a small language model in GGUF (470 MB) of the Hugging Face Hub into the folder `model`."""

import shutil
from pathlib import Path

from huggingface_hub import hf_hub_download

REPOSITORY, NAME = "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf"
FILE = Path(__file__).parent / "model" / "weights.gguf"


def main() -> None:
    """Download the weights, and store them under the name that `model/model.py` reads."""
    shutil.copyfile(hf_hub_download(REPOSITORY, NAME), FILE)
    print(f"{NAME} of {REPOSITORY} is stored in {FILE}")


if __name__ == "__main__":
    main()
