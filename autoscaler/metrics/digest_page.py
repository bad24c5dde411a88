"""Parser of the page `/digest` of a replica: the digest of the files that it loads, and whether it was confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from autoscaler.metrics.stat import DIGEST, BadSample
from clusters.net.endpoints import Endpoint

WAIT: Final = 20
"""Seconds for which a replica keeps the request open until its files are present."""
MAX_BYTES: Final = 1_024
"""Maximum bytes of a response; ours has about 110."""


@dataclass(frozen=True, slots=True)
class LoadedDigest:
    """The digest of a replica's files, "" until they are present. A replica that is not `confirmed` is not ready."""

    digest: str
    confirmed: bool


class DigestSource(Protocol):
    """A source of the digests of starting replicas."""

    async def loaded(self, endpoint: Endpoint) -> LoadedDigest:
        """Return the replica's digest as soon as it is known, or after WAIT seconds. Raises NoSample or BadSample."""
        ...

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        """Send the recorded digest, which lets the replica become ready. Raises NoSample when the replica
        rejects it.
        """
        ...


class _Page(msgspec.Struct):
    confirmed: bool
    digest: str | None = None


_DECODER = msgspec.json.Decoder(_Page)


def read_loaded(body: bytes) -> LoadedDigest:
    """Return the digest in a response of `/digest`. Raises BadSample."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/digest did not answer with a digest: {error}") from error
    if page.digest is not None and not DIGEST.fullmatch(page.digest):
        raise BadSample("/digest answered with something that is not a digest")
    return LoadedDigest(page.digest or "", page.confirmed)
