"""The objects in the YAML files of a checkout of KServe, or of a bare git repository of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clusters.net.strict_yaml import LoadError, load_documents

SAMPLES = ("docs", "hack", "python", "test")
"""Folders with samples. The others are KServe's own installation."""
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Sample:
    """One object of a file."""

    file: str
    document: dict[str, Any]


def texts(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of each YAML file."""
    if (checkout / "docs").is_dir():
        for folder in SAMPLES:
            for path in sorted((checkout / folder).rglob("*")):
                if path.suffix in SUFFIXES:
                    yield path.relative_to(checkout).as_posix(), path.read_text()
        return
    for name in _git(checkout, "ls-tree", "-r", "--name-only", "HEAD").splitlines():
        path_of = PurePosixPath(name)
        if path_of.parts[0] in SAMPLES and path_of.suffix in SUFFIXES:
            try:
                yield name, _git(checkout, "cat-file", "-p", f"HEAD:{name}")
            except subprocess.CalledProcessError:
                continue  # a mirror may lack its largest files


def samples(checkout: Path) -> tuple[list[Sample], list[str]]:
    """Return the objects, and the files that are not YAML: templates and faulty files."""
    found, broken = [], []
    for name, text in texts(checkout):
        try:
            documents = load_documents(text, name)
        except LoadError:
            broken.append(name)
            continue
        found += [Sample(name, one) for one in documents if isinstance(one, dict) and one.get("kind")]
    return found, broken


def commit_of(checkout: Path) -> str:
    """Return commit and date of a git checkout."""
    return _git(checkout, "log", "-1", "--format=%h of %cs").strip()


def _git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
