"""Files put down whole: a crash leaves the former or the new text, and what has not changed is not touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

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


def write_document(path: Path, document: dict[str, Any]) -> bool:
    """`write` for a configuration: JSON, which every reader of YAML reads."""
    return write(path, json.dumps(document, indent=2) + "\n")
