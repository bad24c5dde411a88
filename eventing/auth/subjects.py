"""Who may be a sender by a token: a service account sends to its own namespace. Pure.

Tokens of one issuer are for one audience, whichever EventSource they are sent to: one in another namespace that named
somebody else's service account would be given its events.
"""

from __future__ import annotations

from typing import Final

from clusters.runtime.manager.options import SYSTEM_NAMESPACE

ACCOUNT: Final = "system:serviceaccount:"
"""How subjects of service accounts begin, NAMESPACE:NAME follows; of whichever cluster."""


def may_name(namespace: str, subject: str) -> bool:
    """Whether an EventSource in `namespace` is for that subject."""
    if not subject.startswith(ACCOUNT):
        return True
    return namespace in (SYSTEM_NAMESPACE, subject.removeprefix(ACCOUNT).partition(":")[0])
