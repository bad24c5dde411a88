"""Bounds of what comes over the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Bounds of one artifact's download; times in seconds."""

    connect: float = 10.0  # of one connection attempt
    silence: float = 30.0  # without a byte
    total: float = 3600.0  # of all, waiting and trying again included; a model's startup deadline is rarely longer
    redirects: int = 5
    retries: int = 4  # tries again, in a row, that bring nothing new
    pause: float = 1.0  # before the first of them; doubled before each further one
