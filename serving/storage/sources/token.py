"""Access tokens, as the services that give them answer: `access_token` (RFC 6749, 5.1), of registries `token`."""

from __future__ import annotations

from typing import Final

import msgspec

from serving.storage.base.errors import StorageError
from serving.storage.transfer.web import Answer, Web

LARGEST: Final = 1 << 20  # bytes of the answer


class Token(msgspec.Struct):
    """A token, and for how many seconds it holds (0: not told)."""

    token: str | None = None
    access_token: str | None = None
    expires_in: float = 0.0

    @property
    def value(self) -> str:
        """The token; "" when there is none."""
        return self.token or self.access_token or ""


def read_token(web: Web, answer: Answer) -> Token:
    """The token that the answer has. Raises StorageError."""
    body = web.read(answer, LARGEST)
    try:
        token = msgspec.json.decode(body, type=Token, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"{answer.name}: answered with no access token") from error
    if not token.value:
        raise StorageError(f"{answer.name}: answered with no access token")
    return token
