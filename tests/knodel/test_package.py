"""The package `knodel`: its names, and what an import of it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import knodel

ROOT = Path(__file__).parents[2]
LOADED = "import sys; {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def loaded_by(statement: str) -> set[str]:
    """Return the top-level packages that a new interpreter has after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_every_public_name_is_there_and_documented() -> None:
    for name in knodel.__all__:
        assert getattr(knodel, name).__doc__, name


def test_every_error_of_the_package_is_a_knodel_error() -> None:
    assert issubclass(knodel.NotEmitted, knodel.KnodelError)


def test_an_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(AttributeError, match="'knodel' has no attribute 'depoly': it has AsyncClient"):
        knodel.depoly  # noqa: B018  the access is what is tested


def test_an_import_loads_nothing_but_the_standard_library() -> None:
    ours = {"clusters", "eventing", "serving", "autoscaler"}

    assert not loaded_by("import knodel") & ours
