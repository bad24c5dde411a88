"""Files put down whole: a crash leaves the former or the new text, and what has not changed is not touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

PRIVATE: Final = 0o600


def write(path: Path, text: str, mode: int = PRIVATE) -> bool:
    """Make `path` hold `text`; whether it was changed (kube-proxy ends when its file is written to)."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.touch(mode)
    temporary.write_text(text)
    temporary.replace(path)
    return True


def write_with(path: Path, writer: Callable[[BinaryIO], object]) -> None:
    """Make `path` hold what `writer` writes."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        writer(file)
    beside.replace(path)


def write_document(path: Path, document: dict[str, Any]) -> bool:
    """`write` for a configuration: JSON, which every reader of YAML reads."""
    return write(path, json.dumps(document, indent=2) + "\n")
