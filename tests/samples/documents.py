"""The objects in the YAML files of a checkout of KServe, or of a bare git repository of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.net.strict_yaml import LoadError, load_documents

SAMPLES = ("docs", "hack", "python", "test")
"""Folders with samples. The others are KServe's own installation."""
SUFFIXES = (".yaml", ".yml")
PAGES = (".md", ".mdx")
_BLOCK = re.compile(r"```ya?ml[^\n]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sample:
    """One object of a file."""

    file: str
    document: dict[str, Any]


def texts(checkout: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file with one of the suffixes."""
    in_git = not (checkout / "docs").is_dir()
    if in_git:
        names = _git(checkout, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    else:
        names = sorted(path.relative_to(checkout).as_posix() for path in checkout.rglob("*") if path.is_file())
    for name in names:
        if name.endswith(tuple(suffixes)):
            try:
                yield (
                    name,
                    _git(checkout, "cat-file", "-p", f"HEAD:{name}") if in_git else (checkout / name).read_text(),
                )
            except subprocess.CalledProcessError:
                continue  # a mirror may lack its largest files


def samples(checkout: Path) -> tuple[list[Sample], list[str]]:
    """Return the objects, and the files that are not YAML: templates and faulty files."""
    found, broken = [], []
    for name, text in texts(checkout):
        if name.partition("/")[0] not in SAMPLES:
            continue
        try:
            documents = load_documents(text, name)
        except LoadError:
            broken.append(name)
            continue
        found += [Sample(name, one) for one in documents if isinstance(one, dict) and one.get("kind")]
    return found, broken


def unique_services(checkout: Path) -> list[dict[str, Any]]:
    """Return the different InferenceServices in all YAML files, and in the YAML blocks of all Markdown pages."""
    found: dict[str, dict[str, Any]] = {}
    for name, text in texts(checkout, (*SUFFIXES, *PAGES)):
        for block in _BLOCK.findall(text) if name.endswith(PAGES) else [text]:
            try:
                documents = load_documents(block, name)
            except LoadError:
                continue
            for one in documents:
                if isinstance(one, dict) and one.get("kind") == "InferenceService":
                    found[repr(one)] = one
    return list(found.values())


def commit_of(checkout: Path) -> str:
    """Return commit and date of a git checkout."""
    return _git(checkout, "log", "-1", "--format=%h of %cs").strip()


def _git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
