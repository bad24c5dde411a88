"""The version of this distribution, as its metadata says it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("knodel")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0.0.0"


VERSION = _installed()
