"""What can go wrong with the gateway.

KnodelError
├── AddressInUse    another process listens where the gateway is to listen
├── Refused         Envoy did not take a configuration that was made for it
└── NotServing      Envoy does not answer, or has not taken a configuration over in time
"""

from __future__ import annotations

from clusters.errors import KnodelError


class AddressInUse(KnodelError):
    """The gateway's address is taken."""


class Refused(KnodelError):
    """Envoy refused a configuration; the former one stays in force."""


class NotServing(KnodelError):
    """Envoy does not answer in time."""
