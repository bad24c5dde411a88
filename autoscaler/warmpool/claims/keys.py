"""The key of the tokens by which members authenticate load calls."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Final

from clusters.base.errors import KnodelError
from clusters.base.objects import Key

KEY_BYTES: Final = 32
"""Bytes of a generated key: as many as SHA-256 uses."""
SHORTEST_KEY: Final = 16
"""Minimum bytes of a key from a file: 128 bits cannot be guessed."""
KEPT_HASHES: Final = 4_096
"""Members whose hash is cached, because every pass over a pool compares it."""


class BadPoolKey(KnodelError):
    """Raised when the key file is unreadable or too short."""


class PoolKey:
    """A key, and the tokens that are derived from it. Every process with the same key derives the same tokens."""

    __slots__ = ("_key", "_sha256")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sha256 = lru_cache(maxsize=KEPT_HASHES)(
            lambda pod: hashlib.sha256(self.token_for(pod).encode()).hexdigest()
        )

    @classmethod
    def random(cls) -> PoolKey:
        """Return a key of this process. Members of other processes are then replaced."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_file(cls, path: Path) -> PoolKey:
        """Return the content of the file without surrounding white space (Secrets made by hand end with a newline).

        Raises BadPoolKey.
        """
        try:
            key = path.read_bytes().strip()
        except OSError as exc:
            raise BadPoolKey(f"--pool-key {path}: cannot read the file: {exc.strerror or exc}") from exc
        if len(key) < SHORTEST_KEY:
            raise BadPoolKey(f"--pool-key {path}: {len(key)} bytes: at least {SHORTEST_KEY} random ones are needed")
        return cls(key)

    def token_for(self, pod: Key) -> str:
        """Return the bearer token of the member: hex HMAC-SHA256 of `namespace/name`, so that members cannot use each
        other's.
        """
        return hmac.new(self._key, str(pod).encode(), hashlib.sha256).hexdigest()

    def sha256_for(self, pod: Key) -> str:
        """Return the hex SHA-256 of the member's token, which it receives in `marks.ENV_TOKEN`."""
        return self._sha256(pod)

    def __repr__(self) -> str:
        return "PoolKey(…)"
