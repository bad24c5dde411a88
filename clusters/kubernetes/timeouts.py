"""How long the adapter waits for an API server, in seconds. No request of ours is without a limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. The defaults notice a dead server within one minute."""

    connect: float = 5.0
    """For TCP and TLS: a server that is there answers within milliseconds."""
    request: float = 30.0
    """For one answer, body included; a webhook may take up to 10 s by default, 30 s at most."""
    total: float = 60.0
    """For one call with all its repetitions after 429 and 503, as long as the server asks us to come back."""
    watch: float = 40.0
    """After which the server is asked to end a watch; it is opened again where it stood."""
    silence: float = 50.0
    """After which a watch that neither speaks nor ends is taken for dead: above `watch`, below one minute."""
    first_backoff: float = 0.25
    """Before a broken watch is opened again; doubles with each failure in a row."""
    largest_backoff: float = 5.0
    """The end of that doubling: how late a watch comes back to a server that was away for long."""

    def __post_init__(self) -> None:
        """Raise ValueError for a watch that would be taken for dead before the server ends it."""
        if not self.watch < self.silence:
            raise ValueError(f"watch {self.watch} s must be below silence {self.silence} s")
