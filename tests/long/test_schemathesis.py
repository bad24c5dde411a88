"""Schemathesis, a fuzzer that reads OpenAPI documents, against a server and the document that it gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.long.served import served
from tests.support import models

PROGRAM = Path(sys.prefix, "bin", "schemathesis")
EXAMPLES = 200  # of each operation
LEFT_OUT = ("positive_data_acceptance",)
"""Checks that do not hold: JSON Schema has no words for "as many elements as the shape says"."""


def halving(folder: Path) -> Path:
    """FP32 x [n] → y = x / 2: a model that has an answer to every number."""
    path = folder / "half.onnx"
    path.write_bytes(models.times(0.5))
    return path


def test_no_request_that_the_document_leads_to_surprises(tmp_path: Path) -> None:
    with served(tmp_path / "log", str(halving(tmp_path))) as server:
        done = subprocess.run(
            [str(PROGRAM), "run", f"{server.url}/openapi.json", "--checks", "all", "--exclude-checks",
             ",".join(LEFT_OUT), "--max-examples", str(EXAMPLES), "--generation-database", "none", "--no-color"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
