"""The rule for OIDC subjects of EventSources: a service account may only send to its own namespace. Pure.

All tokens of an issuer have the same audience, whichever EventSource they are sent to. Without this rule, an
EventSource that names a service account of another namespace would receive that account's events.
"""

from __future__ import annotations

from typing import Final

from clusters.runtime.manager.options import SYSTEM_NAMESPACE

ACCOUNT: Final = "system:serviceaccount:"
"""Prefix of service account subjects in every cluster; NAMESPACE:NAME follows."""


def is_allowed_subject(namespace: str, subject: str) -> bool:
    """Return whether an EventSource in `namespace` may name that subject."""
    if not subject.startswith(ACCOUNT):
        return True
    return namespace in (SYSTEM_NAMESPACE, subject.removeprefix(ACCOUNT).partition(":")[0])
