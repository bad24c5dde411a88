"""Read the page `/digest` of a replica: the digest of the files that it loads, and whether it waits for the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from autoscaler.metrics.stat import DIGEST, BadSample
from clusters.net.endpoints import Endpoint

WAIT: Final = 20
"""Seconds for which a replica keeps the request open while its files are not there."""
MAX_BYTES: Final = 1_024
"""Bytes of an answer; ours has some 110."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The digest of a replica's files, "" until they are there; a replica that is not `confirmed` is not ready."""

    digest: str
    confirmed: bool


class DigestSource(Protocol):
    """Replicas that start."""

    async def loaded(self, endpoint: Endpoint) -> Loaded:
        """Return what the replica loads, as soon as it is known, or after WAIT. Raises NoSample or BadSample."""
        ...

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        """Send the recorded digest, which lets the replica become ready. Raises NoSample where it does not take it."""
        ...


class _Page(msgspec.Struct):
    confirmed: bool
    digest: str | None = None


_DECODER = msgspec.json.Decoder(_Page)


def read_loaded(body: bytes) -> Loaded:
    """Return what an answer of `/digest` reports. Raises BadSample."""
    try:
        page = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/digest did not answer with a digest: {error}") from error
    if page.digest is not None and not DIGEST.fullmatch(page.digest):
        raise BadSample("/digest answered with something that is not a digest")
    return Loaded(page.digest or "", page.confirmed)
