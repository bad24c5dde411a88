"""docs/troubleshooting.md has every reason of a condition, and messages that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from autoscaler.warmpool.status import OBSTACLES
from tests.docsite.markdown import anchors
from tests.docsite.reasons import find_reasons, parse_packages
from tests.docsite.sources import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
BY_REASON, _, BY_MESSAGE = PAGE.partition("\n## Error messages\n")
LISTED = {*re.findall(r"^### `(\w+)`$", BY_REASON, re.MULTILINE)}
USUAL = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE))))
MESSAGES = re.findall(r"^### `(.+)`$", BY_MESSAGE.partition("\n## ")[0], re.MULTILINE)
REASONS = {*find_reasons(ROOT), *(rule.value for rule in OBSTACLES)}


def test_every_reason_has_an_entry() -> None:
    assert {*REASONS} - LISTED - USUAL == set()


def test_every_entry_is_a_reason_of_the_code() -> None:
    assert (LISTED | USUAL) - {*REASONS} == set()


def test_anchors_are_the_reasons() -> None:
    """Messages, runbooks and other pages link to them."""
    assert {reason.lower() for reason in LISTED} <= set(anchors(PAGE))


@cache
def texts() -> str:
    """Return the texts of all packages, with `…` for values that a message fills in."""
    nodes = (node for tree in parse_packages(ROOT).values() for node in ast.walk(tree))
    return "\n".join(filter(None, map(_text_of, nodes)))


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_one_of_the_code(message: str) -> None:
    parts = [part.strip() for part in message.split("…") if part.strip()]
    assert parts
    pattern = "[^\n]*".join(map(re.escape, parts))
    assert re.search(pattern, texts())
