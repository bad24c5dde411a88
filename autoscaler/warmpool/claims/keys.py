"""The secret by which a member knows who may give it a model."""

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
"""Bytes of a key made here: as many as SHA-256 uses of one."""
SHORTEST_KEY: Final = 16
"""Bytes that a key from a file must have: 128 bits cannot be guessed."""
KEPT_HASHES: Final = 4_096
"""Members whose hash is remembered: it is compared at every look at a pool."""


class BadPoolKey(KnodelError):
    """The file of the key cannot be read, or is too short."""


class PoolKey:
    """A key, and the tokens that follow from it; every process with the same key makes the same tokens."""

    __slots__ = ("_key", "_sha256")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sha256 = lru_cache(maxsize=KEPT_HASHES)(self._hash)

    @classmethod
    def random(cls) -> PoolKey:
        """A key of this process's own: members of another process are strangers to it, and recycled."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_file(cls, path: Path) -> PoolKey:
        """The bytes of the file, without white space around them (Secrets made by hand end with a newline).

        Raises BadPoolKey.
        """
        try:
            key = path.read_bytes().strip()
        except OSError as exc:
            raise BadPoolKey(f"--pool-key {path}: cannot read it: {exc.strerror or exc}") from exc
        if len(key) < SHORTEST_KEY:
            raise BadPoolKey(f"--pool-key {path}: {len(key)} bytes: at least {SHORTEST_KEY} random ones are needed")
        return cls(key)

    def token_for(self, pod: Key) -> str:
        """The bearer token of that member: hex HMAC-SHA256 of `namespace/name`, so that no namesake learns it."""
        return hmac.new(self._key, str(pod).encode(), hashlib.sha256).hexdigest()

    def sha256_for(self, pod: Key) -> str:
        """What the member is told of its token, in `marks.ENV_TOKEN`: its hex SHA-256."""
        return self._sha256(pod)

    def _hash(self, pod: Key) -> str:
        return hashlib.sha256(self.token_for(pod).encode()).hexdigest()

    def __repr__(self) -> str:
        return "PoolKey(…)"
