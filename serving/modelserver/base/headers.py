"""HTTP headers as pairs of bytes, with names in lower case. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]

JSON_LENGTH: Final = b"inference-header-content-length"
"""Header with the size of the JSON part of a body; binary tensors follow it (Triton, binary tensor data extension)."""

REVISION: Final = b"knodel-revision"
"""Response header with the name of the revision that answered."""


def media_type(content_type: bytes) -> tuple[bytes, bool]:
    """Return the media type in lower case, and whether its charset is UTF-8 or left out."""
    kind, _, parameters = content_type.lower().partition(b";")
    charset = parameters.strip().replace(b'"', b"").replace(b" ", b"")
    return kind.strip(), charset in (b"", b"charset=utf-8")
