"""Limits of downloads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Limits of one artifact's download; times in seconds.

    connect         time for one connection attempt
    silence         longest time without a byte
    total           time for the whole artifact, with waiting and retries; a model's startup deadline is rarely longer
    redirects       redirects that one request follows
    retries         consecutive retries without a new byte
    pause           time before the first retry; doubles with each further one
    files_at_once   files of one artifact that are downloaded at the same time. Each takes a thread, a connection, two
                    open files and about 0.5 MiB of memory. A server that answers 429 or 503 gets fewer at once.
    """

    connect: float = 10.0
    silence: float = 30.0
    total: float = 3600.0
    redirects: int = 5
    retries: int = 4
    pause: float = 1.0
    files_at_once: int = 8
