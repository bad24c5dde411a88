"""Load Kubernetes objects from YAML and JSON text, for the command and the control API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusters.base.objects import KINDS, MODEL, Kind, Object
from clusters.net.strict_yaml import LARGEST_TEXT, LoadError, check_size, load_documents
from serving.types.input_files import open_input


def load_objects(text: str, source: str = "the text") -> list[Object]:
    """Return every Kubernetes object of a YAML or JSON text, with the items of a `List`. Raises LoadError."""
    objects: list[Object] = []
    for number, document in enumerate(load_documents(text, source), start=1):
        where = f"{source}, document {number}"
        if isinstance(document, dict) and document.get("kind") == "List" and "items" in document:
            items = document["items"]
            if not isinstance(items, list):
                raise LoadError(f"{where}: items must be a list")
            objects += [_checked(item, f"{where}, items[{index}]") for index, item in enumerate(items)]
        else:
            objects.append(_checked(document, where))
    if not objects:
        raise LoadError(f"{source} contains no object: write a Model (apiVersion {MODEL.api_version})")
    return objects


def load_models(text: str, source: str = "the text", kinds: Sequence[Kind] = (MODEL,)) -> list[Object]:
    """Return the objects of a text that may contain only these kinds. Raises LoadError."""
    objects = load_objects(text, source)
    for obj in objects:
        if not any((obj["apiVersion"], obj["kind"]) == (kind.api_version, kind.kind) for kind in kinds):
            raise LoadError(
                f"{source}: {obj['kind']} ({obj['apiVersion']}) is not accepted here: write a "
                f"{' or a '.join(kind.kind for kind in kinds)} ({MODEL.api_version})"
            )
    return objects


def read_models(path: Path, kinds: Sequence[Kind] = (MODEL,)) -> list[Object]:
    """Return the Models, or objects of these kinds, in a file. Raises LoadError."""
    try:
        with open_input(path) as file:  # the file may be endless
            content = file.read(LARGEST_TEXT + 1)
        check_size(len(content), str(path))  # before decoding: the cut may be inside a character
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise LoadError(f"cannot read {path}: {reason}") from error
    return load_models(text, str(path), kinds)


def _checked(value: Any, where: str) -> Object:
    if not isinstance(value, dict):
        raise LoadError(f"{where} is not an object with apiVersion, kind and metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            known = " or ".join(sorted({kind.kind for kind in KINDS if kind.group == MODEL.group}))
            raise LoadError(f"{where}: {field} is missing: write apiVersion {MODEL.api_version} and kind {known}")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise LoadError(f"{where}: metadata.name is missing")
    return value
