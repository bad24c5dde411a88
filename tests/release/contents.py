"""What an sdist and a wheel must contain and what they must not. Pure: names and metadata in, problems out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from packaging.metadata import Metadata

PACKAGES: Final = ("autoscaler", "clusters", "eventing", "knodel", "serving")
"""Top-level packages of the wheel."""
SOURCE_ONLY: Final = (
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "docs/package.md",
    "pyproject.toml",
    "requirements/constraints.txt",
)
"""Files of the sdist beside the packages."""
GENERATED: Final = ("PKG-INFO", ".gitignore")
"""Files that the build backend adds to an sdist."""
NEVER: Final = re.compile(r"(^|/)(tests|loadtests|__pycache__|\.git|\.venv|build|dist)/|\.py[co]$|\.orig$|~$")
"""Paths that no distribution may have. Templates of projects have tests of their own, as files, not as a folder."""


def check_wheel(names: Collection[str], tracked: Collection[str]) -> list[str]:
    """Return the problems of a wheel with these members, made from these tracked files.

    Example:
        >>> check_wheel(["knodel/__init__.py"], ["knodel/__init__.py", "knodel/py.typed"])
        ['the wheel lacks knodel/py.typed']
    """
    own = {name for name in names if ".dist-info/" not in name}
    return [*_differences("the wheel", own, set(packaged(tracked))), *_unwanted("the wheel", own)]


def check_sdist(names: Collection[str], tracked: Collection[str]) -> list[str]:
    """Return the problems of an sdist with these members, without its top folder, made from these tracked files."""
    own = set(names) - set(GENERATED)
    return [*_differences("the sdist", own, {*packaged(tracked), *SOURCE_ONLY}), *_unwanted("the sdist", own)]


def packaged(tracked: Iterable[str]) -> Iterator[str]:
    """Yield the tracked files of our packages: code and data."""
    return (name for name in tracked if PurePosixPath(name).parts[0] in PACKAGES)


def check_metadata(text: bytes, version: str) -> list[str]:
    """Return the problems of a METADATA or PKG-INFO file, as an index would report them."""
    try:
        found = Metadata.from_email(text, validate=True)
    except ExceptionGroup as faults:
        return [f"invalid metadata: {fault}" for fault in faults.exceptions]
    wanted = {
        "name": (found.name, "knodel"),
        "version": (str(found.version), version),
        "license": (str(found.license_expression), "Apache-2.0"),
        "license files": (found.license_files, ["LICENSE"]),
        "type of the description": (found.description_content_type, "text/markdown"),
    }
    wrong = [f"the {name} is {is_!r}, not {must!r}" for name, (is_, must) in wanted.items() if is_ != must]
    if not (found.description or "").strip():
        wrong.append("the description is empty: README.md is not in the metadata")
    if found.requires_python is None:
        wrong.append("requires-python is missing")
    return wrong


def check_relative_links(description: str) -> list[str]:
    """Return the links of a description that only work inside the repository, since an index shows no other files."""
    targets = re.findall(r"\]\(([^)\s]+)\)", description)
    return [f"the description links to {one}, which an index does not have" for one in targets if "://" not in one]


def _differences(what: str, found: set[str], wanted: set[str]) -> Iterator[str]:
    yield from (f"{what} lacks {name}" for name in sorted(wanted - found))
    yield from (f"{what} has {name}, which is not a tracked file" for name in sorted(found - wanted))


def _unwanted(what: str, names: Iterable[str]) -> Iterator[str]:
    return (f"{what} has {name}" for name in sorted(names) if NEVER.search(name))
