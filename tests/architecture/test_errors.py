"""One exception tree, and a message rule that can be checked."""

from __future__ import annotations

import importlib
import pkgutil

import autoscaler
import clusters
import serving
from clusters.errors import KnodelError
from serving.cli.main import VERBS


def modules() -> list[str]:
    """Every module of the product that can be imported without side effects."""
    return [
        info.name
        for package in (clusters, autoscaler, serving)
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not info.name.endswith("__main__")
    ]


def test_every_error_that_the_product_defines_is_a_knodel_error() -> None:
    strays = []
    for name in modules():
        module = importlib.import_module(name)
        for value in vars(module).values():
            is_error = isinstance(value, type) and issubclass(value, Exception) and value.__module__ == name
            if is_error and not value.__name__.startswith("_") and not issubclass(value, KnodelError):
                strays.append(f"{name}.{value.__name__}")

    assert strays == []


def test_every_verb_has_its_file_and_its_help() -> None:
    for verb in VERBS:
        command = importlib.import_module(f"serving.cli.{verb}_verb").command
        assert command.name == verb
        assert command.help
