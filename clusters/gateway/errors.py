"""What can go wrong with the gateway.

KnodelError
├── Refused         Envoy did not take a configuration that was made for it
└── NotServing      Envoy does not answer, or has not taken a configuration over in time
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class Refused(KnodelError):
    """Envoy refused a configuration; the former one stays in force."""


class NotServing(KnodelError):
    """Envoy does not answer in time."""
