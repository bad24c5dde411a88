"""A program that replays recordings of vLLM 0.32 (`record`), in its place."""

from __future__ import annotations

import sys
from pathlib import Path

RECORDINGS = Path(__file__).parent / "recordings"


def recording(name: str) -> bytes:
    """Return a recorded response, with its head."""
    return (RECORDINGS / f"{name}.http").read_bytes()


def page(name: str) -> str:
    """Return the body of a recorded response that is not a stream."""
    return recording(name).partition(b"\r\n\r\n")[2].decode()


def install(folder: Path) -> None:
    """Write the program `vllm` into a folder for $PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.support.vllm_stub "$@"\n')
    program.chmod(0o755)
