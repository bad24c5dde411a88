"""One-time links and sessions of the dashboard, in memory. They end with the process.

`knodel dashboard` gets a link through the control API, which only the owner of the platform can use. The link starts a
session, which a cookie identifies. Tokens are random, so a token that is found in the table is the right one.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from clusters.base.clock import Clock

LINK_SECONDS: Final = 60.0
"""How long a link can be used."""
SESSION_SECONDS: Final = 12 * 3600.0
"""How long a session lasts, used or not."""
MOST_LINKS: Final = 32
MOST_SESSIONS: Final = 64
"""Beyond these numbers the oldest ones end."""
_BYTES: Final = 32


@dataclass(eq=False, slots=True, weakref_slot=True)
class Session:
    """One login: `id` is the value of its cookie, `csrf` that of the hidden field of its forms.

    `user` is the name to display. `token` is the bearer token with which its actions are done on Kubernetes. `notices`
    are messages for the next page.
    """

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    expires: float
    user: str
    token: str = field(default="", repr=False)
    notices: list[str] = field(default_factory=list)
    namespaces: frozenset[str] | None = None
    """The namespaces that the user may see; None for all."""

    def sees(self, namespace: str) -> bool:
        """Return whether the user may see the objects of a namespace."""
        return self.namespaces is None or namespace in self.namespaces

    def allows(self, csrf: str) -> bool:
        """Return whether a form with this hidden field is one of this session."""
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())


class Sessions:
    """The links and sessions of one process."""

    def __init__(self, clock: Clock, seconds: float = SESSION_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._links: dict[str, float] = {}
        self._sessions: dict[str, Session] = {}

    def make_link(self) -> str:
        """Return the token of a new link."""
        link = secrets.token_urlsafe(_BYTES)
        self._links[link] = self._clock.monotonic() + LINK_SECONDS
        while len(self._links) > MOST_LINKS:
            del self._links[next(iter(self._links))]
        return link

    def use_link(self, link: str, user: str) -> Session | None:
        """Return a new session, None for a link that is unknown, used or expired."""
        expires = self._links.pop(link, 0.0)
        return self.start(user) if self._clock.monotonic() < expires else None

    def start(
        self,
        user: str,
        token: str = "",  # nosec B107 - without a token
        namespaces: frozenset[str] | None = None,
    ) -> Session:
        """Start a session."""
        expires = self._clock.monotonic() + self._seconds
        made = Session(
            secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES), expires, user, token, namespaces=namespaces
        )
        self._sessions[made.id] = made
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return made

    def find(self, id: str) -> Session | None:
        """Return the session of a cookie; None for one that is unknown or has expired."""
        found = self._sessions.get(id)
        if found is not None and self._clock.monotonic() >= found.expires:
            self.end(found)
            return None
        return found

    def end(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
