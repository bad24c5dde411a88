"""The errors of the gateway.

KnodelError
├── ConfigurationRejected   Envoy rejected a configuration
└── NotServing              Envoy does not respond, or has not applied a configuration in time
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class ConfigurationRejected(KnodelError):
    """Envoy rejected a configuration, and the former one remains in force."""


class NotServing(KnodelError):
    """Envoy does not respond in time."""
