"""The tool that measures the shares for KServe's samples, on a small checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tests.samples.documents import samples
from tests.samples.measure import page
from tests.serving.importing.test_inference_service import onnx, service


def test_the_page_has_shares_and_reasons(tmp_path: Path) -> None:
    files = {
        "docs/a.yaml": [service(onnx()), {"apiVersion": "v1", "kind": "Secret"}],
        "docs/b.yml": [service({**onnx(), "logger": {"mode": "all"}})],
        "test/c.yaml": [service({"triton": {"storageUri": "gs://models/torchscript"}})],
        "hack/d.yaml": [service({"pytorch": {"storageUri": "gs://models/m"}})],
        "config/e.yaml": [service(onnx())],
    }
    for name, documents in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump_all(documents))
    (tmp_path / "docs" / "template.yaml").write_text("a: {b}: c")
    found, broken = samples(tmp_path)
    asked: list[tuple[str, str]] = []

    def serve(uri: str, model_format: str) -> str:
        asked.append((uri, model_format))
        return "served" if model_format else "refused"

    text = page(found, broken, "abc of 2026-01-01", serve)
    assert "| InferenceService | 4 | 2 | 1 | 1 |" in text
    assert "**3 of 4 InferenceServices convert (75 %), and 2 of these 3 serve (67 %).**" in text
    assert "| no engine serves the format pytorch | 1 |" in text
    assert sorted(asked) == [("gs://models/torchscript", ""), ("s3://models/iris", "onnx")]  # one for each class

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-A"], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(tmp_path), *author, "commit", "-qm", "x"], check=True)
    assert samples(tmp_path / ".git") == (found, broken)
