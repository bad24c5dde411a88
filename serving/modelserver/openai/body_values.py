"""Limit the number of values in the body of a request, each of which takes up to 600 bytes in an engine. Pure."""

from __future__ import annotations

import re
from typing import Final

from serving.modelserver.base.errors import InvalidRequest

MAX_VALUES: Final = 300_000
"""Values of one body, as many as OpenAI takes tokens of all texts of a request to embed."""
_PARTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([,\[{])', re.DOTALL)
"""A text, also one that does not end, or a character after which a value begins. Each byte is read once."""
_TEXTS: Final = 2  # for each value at most: a key and the value


def check_values(content: bytes) -> None:
    """Raise InvalidRequest if the JSON text has more than `MAX_VALUES` values.

    Each value but the first follows a comma or opens a list or an object. They are told from those in texts only if
    there are too many of these characters in all.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) <= MAX_VALUES:
        return
    values = 0
    for parts, part in enumerate(_PARTS.finditer(content)):
        values += part.lastindex is not None
        if values > MAX_VALUES or parts > (1 + _TEXTS) * MAX_VALUES:
            raise InvalidRequest(f"the body has more than {MAX_VALUES} values: send texts in place of tokens")
