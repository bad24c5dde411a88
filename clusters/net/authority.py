"""The authority of a URL, host and port. Pure. It imports nothing, since each start of the command imports it."""

from __future__ import annotations


def url_host(host: str) -> str:
    """Return a host name or address in the form of a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def authority(host: str, port: int) -> str:
    """Return `HOST:PORT` in the form of a URL.

    Example:
        authority("::1", 8080)  # "[::1]:8080"
    """
    return f"{url_host(host)}:{port}"
