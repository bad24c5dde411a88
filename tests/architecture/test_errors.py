"""One exception tree, and a message rule that can be checked."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import autoscaler
import clusters
import eventing
import serving
from serving.cli.main import VERBS, load_command
from tests.architecture.strays import strays

ALONE = ("serving.engines.paddle.", "serving.engines.tensorflow.")
"""Engines whose libraries do not bear each other in one process."""
NOT_HERE = () if importlib.util.find_spec("torch") else ("serving.engines.huggingface.pytorch_model",)
"""Modules whose library only `make test-torch` installs."""


def modules() -> list[str]:
    """Every module of the product that can be imported without side effects."""
    return [
        info.name
        for package in (clusters, autoscaler, serving)
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not info.name.endswith("__main__") and info.name not in NOT_HERE
    ]


@pytest.mark.parametrize("family", ["", *ALONE])
def test_every_error_that_the_product_defines_is_a_knodel_error(family: str) -> None:
    if family:
        names = [name for name in modules() if name.startswith(family)]
        command = [sys.executable, "-m", strays.__module__, *names]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
        assert names and said == []
    else:
        assert strays(name for name in modules() if not name.startswith(ALONE)) == []


def test_no_error_is_taken_for_its_message() -> None:
    """An exception is true also when its text is empty, so `error or "timed out"` is never "timed out"."""
    found = []
    for package in (clusters, autoscaler, eventing, serving):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for handler in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(handler, ast.ExceptHandler) and handler.name:
                    found += [
                        f"{path.name}:{node.lineno}"
                        for node in ast.walk(handler)
                        if isinstance(node, ast.BoolOp)
                        and isinstance(node.values[0], ast.Name)
                        and node.values[0].id == handler.name
                    ]
    assert found == []


def test_every_verb_has_its_command_and_its_help() -> None:
    for verb in VERBS:
        command = load_command(verb)
        assert command.name == verb
        assert command.help
