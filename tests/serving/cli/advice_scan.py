"""Find the commands that messages of the product advise: backticked command lines in string literals."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("knodel", "clusters", "autoscaler", "eventing", "serving")
SPAN = re.compile(r"`([^`]+)`")
ASSIGNMENTS = r"(?:[A-Z_]+=\S+ )*"
"""Environment variables before a command."""
HOLE = "{}"
"""A value that a message fills in."""


def advised_commands() -> dict[str, list[str]]:
    """Return the advised `knodel` commands, with `{}` for filled-in values, and their places."""
    found: dict[str, list[str]] = {}
    for span, place in advised():
        if re.match(rf"{ASSIGNMENTS}knodel( |$)", span):
            found.setdefault(span, []).append(place)
    return found


@cache
def advised() -> tuple[tuple[str, str], ...]:
    """Return every backticked span of a message with its place. Docstrings and click's help texts are not messages."""
    found: list[tuple[str, str]] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documents = _docstrings(tree)
            parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
            for node in ast.walk(tree):
                text = _text_of(node) if id(node) not in documents | parts else ""
                for span in SPAN.findall(text):
                    line = getattr(node, "lineno", 0)
                    found.append((span, f"{path.relative_to(ROOT)}:{line}"))
    return tuple(found)


def _docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of strings that are statements."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return ""
