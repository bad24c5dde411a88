"""Authorization of events: which Models an EventSource may change, and which storage URIs it may set. Pure.

Anything not explicitly allowed is refused. A URI that two programs could parse differently is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from clusters.base.redact import quoted, redact_url
from eventing.objects.ports import EventSource, Mapped

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?")
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._-]*(?::[0-9]{1,5})?", re.ASCII)
"""An authority without user information, brackets and escapes."""
_ENDS: Final = {"oci": "/:@", "hf": "/@"}
"""Characters that may follow a prefix, by scheme (default `/`): a tag, a digest or a revision may follow these."""
_ESCAPED: Final = frozenset({"file", "http", "https", "pvc"})
"""Schemes whose stores decode percent escapes in paths; in others an escape is part of an object's name."""
_PROPOSED: Final = re.compile(r"[:@]refs(?:/|\Z)")
"""A pull request on the Hugging Face Hub, such as `@refs/pr/7`, which anyone can open."""
_WITH_QUERY: Final = frozenset({"http", "https"})
"""Schemes with queries; in others a question mark is part of the name, so a path may follow it."""
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_PLAIN: Final = re.compile(
    r"([a-z][a-z0-9+.-]*)://([a-z0-9_-][a-z0-9._-]*(?::[0-9]{1,5})?)((?:/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*)", re.ASCII
)
"""A URI with one reading only: no escapes, dot segments, empty segments or query."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


def refusal(source: EventSource, mapped: Mapped) -> str:
    """Return why `source` may not make this change, empty if it may, or if the event changes nothing."""
    if mapped.model is None or mapped.change is None:
        return ""
    model = mapped.model
    if not any(_matches(pattern, source.namespace, model.namespace, model.name) for pattern in source.models):
        return (
            f"EventSource {source.namespace}/{source.name} does not allow changes of Model {quoted(model)}: "
            "see its `models`"
        )
    if not is_below(mapped.change.storage_uri, source.storage_prefixes):
        uri = quoted(redact_url(mapped.change.storage_uri).partition("?")[0])
        return f"EventSource {source.namespace}/{source.name} does not allow {uri}: see its `storagePrefixes`"
    return ""


@lru_cache(maxsize=4096)
def _matches(pattern: str, own: str, namespace: str, name: str) -> bool:
    """Return whether the glob `pattern` of an EventSource in namespace `own` matches the Model."""
    of_namespace, slash, of_name = pattern.rpartition("/")
    return fnmatchcase(namespace, of_namespace if slash else own) and fnmatchcase(name, of_name)


def is_below(address: str, prefixes: Sequence[str]) -> bool:
    """Return whether the URI equals one of `prefixes` or lies below one.

    Scheme and authority must be equal, and the path must continue at a `/`. Percent escapes are decoded first for
    stores that decode them. A URI with dot segments, other escapes, or escapes of escapes is below nothing.
    """
    parts = _parts(address)
    return parts is not None and any(_is_below_prefix(parts, _cached_parts(prefix)) for prefix in prefixes)


def _is_below_prefix(parts: tuple[str, str, str], prefix: tuple[str, str, str] | None) -> bool:
    if prefix is None or parts[0] != prefix[0] or parts[1] != prefix[1]:
        return False
    path, begin = parts[2], prefix[2]
    if not path.startswith(begin):
        return False
    return path == begin or not begin or begin.endswith("/") or path[len(begin)] in _ENDS.get(parts[0], "/")


def _parts(address: str) -> tuple[str, str, str] | None:
    """Return (scheme, authority, path), decoded; None for an ambiguous URI."""
    if plain := _PLAIN.fullmatch(address):
        scheme, authority, path = plain.groups()
        return scheme, authority, path
    match = _ADDRESS.fullmatch(address)
    if match is None or _FORBIDDEN.search(address) or not _AUTHORITY.fullmatch(match[2]):
        return None
    if match[4] and match[1].lower() not in _WITH_QUERY:
        return None
    path = match[3]
    if match[1].lower() in _ESCAPED:
        with suppress(UnicodeDecodeError):  # then it keeps its `%`, and is refused below
            path = unquote(path, errors="strict")
    if match[1].lower() == "hf" and _PROPOSED.search(path):
        return None
    if "%" in path or _CONTROL.search(path) or any(one in (".", "..") for one in path.split("/")):
        return None
    return match[1].lower(), match[2].lower(), path


_cached_parts: Final = lru_cache(maxsize=4096)(_parts)
"""A cache for prefixes, which recur; URIs of events do not."""
