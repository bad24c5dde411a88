"""Test that a command imports only the modules that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "yaml",
    "msgspec",
    "aiohttp",
    "asyncio",
    "starlette",
    "uvicorn",
    "uvloop",
    "numpy",
    "cryptography",
    "onnxruntime",
    "kubernetes",
)
PROGRAM = """
import sys
from serving.cli.main import main
main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("verb", [("list",), ("get", "x"), ("wait", "x"), ("predict", "x", "-d", "{}"), ("--help",)])
def test_a_light_verb_imports_nothing_heavy(state: Path, verb: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *verb], capture_output=True, text=True, check=True, timeout=30
    )

    assert set(HEAVY).isdisjoint(done.stderr.split())
