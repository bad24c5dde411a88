"""The authority of a URL: a host and a port. Pure; the command imports it at each start."""

from __future__ import annotations


def url_host(host: str) -> str:
    """Return a host name or address as URLs write it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def authority(host: str, port: int) -> str:
    """Return `HOST:PORT` as URLs write it.

    Example:
        authority("::1", 8080)  # "[::1]:8080"
    """
    return f"{url_host(host)}:{port}"
