"""Addresses of services that serve a model in place of its files: `ray+http://HOST:PORT/PREFIX`. Pure.

Only a Model's `spec.ray.service` makes them; no `storageUri` may have this scheme. Everything that follows a version by
its storage URI (history, rollback, events) follows the version of a service by this one.
"""

from __future__ import annotations

from typing import Final

_SCHEME: Final = "ray+"


def service_uri(url: str) -> str:
    """Return the storage URI of the service at a URL.

    Example:
        service_uri("http://ranker-serve-svc:8000/rank")  # "ray+http://ranker-serve-svc:8000/rank"
    """
    return f"{_SCHEME}{url}"


def service_url(uri: str) -> str:
    """Return the URL of the service that a storage URI names; empty for the URI of files."""
    return uri.removeprefix(_SCHEME) if uri.startswith(_SCHEME) else ""
