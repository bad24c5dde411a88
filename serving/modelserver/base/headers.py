"""Headers as they travel: pairs of bytes, names in lower case. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]

JSON_LENGTH: Final = b"inference-header-content-length"
"""Where the binary data of a body begins (Triton, binary tensor data extension)."""

REVISION: Final = b"knodel-revision"
"""Of answers: the revision that has given it."""


def media_type(content_type: bytes) -> tuple[bytes, bool]:
    """The type in lower case, and whether it is in UTF-8, as JSON is, or does not say."""
    kind, _, parameters = content_type.lower().partition(b";")
    charset = parameters.strip().replace(b'"', b"").replace(b" ", b"")
    return kind.strip(), charset in (b"", b"charset=utf-8")
