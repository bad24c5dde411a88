"""Timeouts for requests to an API server. No request is without one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds. With the defaults, a dead server is detected within one minute."""

    connect: float = 5.0
    """For TCP and TLS: a running server responds within milliseconds."""
    request: float = 30.0
    """For one response with its body; a webhook may take 10 s by default, and 30 s at most."""
    total: float = 60.0
    """For one call with all retries after 429 and 5xx with Retry-After."""
    watch: float = 40.0
    """The server ends a watch after this time; it is then resumed."""
    silence: float = 50.0
    """A watch without data for this time is considered dead: above `watch`, below one minute."""
    first_backoff: float = 0.25
    """Before the first retry of a broken watch; doubles with each consecutive failure."""
    largest_backoff: float = 5.0
    """The maximum of that delay: how late a watch returns to a server after a long outage."""

    def __post_init__(self) -> None:
        """Raise ValueError for a watch that would be considered dead before the server ends it."""
        if not self.watch < self.silence:
            raise ValueError(f"watch {self.watch} s must be below silence {self.silence} s")
