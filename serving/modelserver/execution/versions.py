"""Versions of a model as callers name them."""

from __future__ import annotations


def is_version(version: str, revision: str) -> bool:
    """Whether `version` names the revision: as such, or by its number alone."""
    if version == revision:
        return True
    number = revision.rpartition("-")[2]
    return version.isascii() and version.isdigit() and number.isdigit() and version.lstrip("0") == number.lstrip("0")
