"""Limit the number of values in the body of a request, each of which takes up to 600 bytes in an engine. Pure."""

from __future__ import annotations

import re
from typing import Final

from serving.modelserver.base.errors import InvalidRequest

MAX_VALUES: Final = 300_000
"""Values of one body, as many as OpenAI takes tokens of all texts of a request to embed."""
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A text, also one that does not end: each byte is read once."""


def check_values(content: bytes) -> None:
    """Raise InvalidRequest if the JSON text has more than `MAX_VALUES` values.

    Each value but the first follows a comma or opens a list or an object. They are counted outside of texts only if
    there are too many of these characters in all.
    """
    if _count(content) > MAX_VALUES and _count(_TEXT.sub(b"", content)) > MAX_VALUES:
        raise InvalidRequest(
            f"the body has more than {MAX_VALUES} values: send texts in place of tokens, or less at once"
        )


def _count(content: bytes) -> int:
    return sum(map(content.count, (b",", b"[", b"{")))
