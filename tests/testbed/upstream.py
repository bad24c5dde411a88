"""Upstream's manifests, read out of the Go module cache: nothing of theirs is kept in this repository."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import golang
from tests.testbed.errors import TestbedError
from tests.testbed.versions import Module

Document = dict[str, Any]


def sources(module: Module, paths: Iterable[str]) -> dict[str, Path]:
    """Where the sources of these Go modules, at the versions that `module` pins, lie on this machine.

    They are downloaded if need be. Raises TestbedError when one cannot be had.
    """
    wanted = list(paths)
    said = golang.run("mod", "download", "-json", *wanted, cwd=module.folder)
    found = {answer["Path"]: Path(answer["Dir"]) for answer in _objects(said)}
    missing = sorted(set(wanted) - found.keys())
    if missing:
        raise TestbedError(f"the sources of {', '.join(missing)} are not in go.mod of {module.folder}: add them there")
    return found


def documents(folder: Path, *places: str) -> list[Document]:
    """The objects in these files and folders (with all below) of `folder`, in the order of their paths.

    Raises TestbedError when a place is not there: upstream has moved it.
    """
    files: list[Path] = []
    for place in places:
        path = folder / place
        if not path.exists():
            raise TestbedError(f"{path} is not there: this version of upstream keeps it elsewhere")
        files += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    loaded = (document for file in files for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader))
    return [document for document in loaded if document]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    text = text.lstrip()
    while text:
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:].lstrip()
