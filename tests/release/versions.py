"""The version of a release, and the places that must have it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NUMBER: Final = r"(?:0|[1-9]\d*)"
TAG: Final = re.compile(rf"v({_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:(?:a|b|rc)\d+)?)")
"""Tags of releases: a version of SemVer, or a pre-release in the spelling of PEP 440 such as 1.0.0rc1."""


def version_of_tag(tag: str) -> str:
    """Return the version of a tag; empty for a tag that names no release.

    Example:
        >>> version_of_tag("v0.1.0"), version_of_tag("0.1")
        ('0.1.0', '')
    """
    found = TAG.fullmatch(tag)
    return found[1] if found else ""


def tag_problems(tag: str, versions: Mapping[str, str], changelog: str) -> list[str]:
    """Return why a tag cannot be released. `versions`: place → the version that it has."""
    version = version_of_tag(tag)
    if not version:
        return [f"{tag} is not a tag of a release: use v1.2.3"]
    wrong = [f"{place} has version {found}, the tag {version}" for place, found in versions.items() if found != version]
    if not re.search(rf"^## {re.escape(version)}( |$)", changelog, re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no section `## {version}`")
    return wrong
