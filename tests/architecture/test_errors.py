"""One exception tree, and a message rule that can be checked."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import autoscaler
import clusters
import serving
from serving.cli.main import VERBS
from tests.architecture.strays import strays

ALONE = ("serving.engines.paddle", "serving.engines.tensorflow")
"""Engines whose libraries do not bear each other in one process."""


def modules() -> list[str]:
    """Every module of the product that can be imported without side effects."""
    return [
        info.name
        for package in (clusters, autoscaler, serving)
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not info.name.endswith("__main__")
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


def test_every_verb_has_its_file_and_its_help() -> None:
    for verb in VERBS:
        command = importlib.import_module(f"serving.cli.{verb}_verb").command
        assert command.name == verb
        assert command.help
