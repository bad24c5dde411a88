"""The version of this distribution, from its metadata."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("knodel")
except PackageNotFoundError:  # run from a checkout that was never installed
    VERSION = "0.0.0"
