"""Measure the memory of a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from serving.modelserver.execution.loading import artifact_size
from serving.modelserver.execution.memory import resident_bytes, trim_allocator
from serving.storage.base.artifact import Artifact

SIZE = 32 << 20


def test_what_is_touched_counts_and_what_is_freed_is_given_back() -> None:
    trim_allocator()
    before = resident_bytes()
    touched = b"\1" * SIZE
    assert resident_bytes() - before > 0.9 * SIZE
    del touched
    trim_allocator()
    assert resident_bytes() - before < 0.5 * SIZE


def test_children_count_too() -> None:
    before = resident_bytes()
    program = f"touched = b'1' * {SIZE}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes() - before > 0.9 * SIZE
        child.communicate("\n")


def test_the_size_of_an_artifact_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(bytes(100))
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "weights").write_bytes(bytes(50))
    assert artifact_size(Artifact(tmp_path, None)) == 150
    assert artifact_size(Artifact(tmp_path / "model.onnx", bytes(70))) == 70
