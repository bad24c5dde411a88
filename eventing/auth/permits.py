"""What a known sender may do: of which Models it may speak, and from where their artifacts may come. Pure.

Everything that is not plainly allowed is refused: an address that two programs could read differently is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from eventing.errors import shown
from eventing.objects.ports import EventSource, Mapped

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?")
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._-]*(?::[0-9]{1,5})?", re.ASCII)
"""No user before an `@`, no brackets, no escapes."""
_USER: Final = re.compile(r"://[^/?#]*@")
_ENDS: Final = {"oci": "/:@", "hf": "/@"}
"""What a name may go on with behind a prefix: of these a tag, a digest or a revision may follow it."""
_ESCAPED: Final = frozenset({"file", "http", "https", "pvc"})
"""Whose paths are read without their percent escapes; elsewhere an escape is a part of the name, of another object."""
_PROPOSED: Final = re.compile(r"[:@]refs(?:/|\Z)")
"""In a path of the Hugging Face Hub: `@refs/pr/7` is a pull request, which anybody may make."""
_WITH_QUERY: Final = frozenset({"http", "https"})
"""Elsewhere a question mark is a part of the name, and what is behind it a path."""
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_PLAIN: Final = re.compile(
    r"([a-z][a-z0-9+.-]*)://([a-z0-9_-][a-z0-9._-]*(?::[0-9]{1,5})?)((?:/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*)", re.ASCII
)
"""What reads the same in every way, and needs none of them: no escapes, no dot segments, nothing empty, no query."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


def refusal(source: EventSource, mapped: Mapped) -> str:
    """Why `source` may not ask for this; empty when it may, or asks for nothing."""
    if mapped.model is None or mapped.change is None:
        return ""
    model = mapped.model
    for pattern in source.models:
        if _covers(pattern, source.namespace, model.namespace, model.name):
            break
    else:
        return f"EventSource {source.namespace}/{source.name} is not for the Model {shown(model)}: see its `models`"
    if not is_below(mapped.change.storage_uri, source.storage_prefixes):
        uri = shown(_without_secrets(mapped.change.storage_uri))
        return f"EventSource {source.namespace}/{source.name} does not allow {uri}: see its `storagePrefixes`"
    return ""


def _without_secrets(address: str) -> str:
    """For a log: without what stands before an `@` of the authority, and without a query, which may be signed."""
    return _USER.sub("://***@", address.partition("?")[0])


@lru_cache(maxsize=4096)
def _covers(pattern: str, own: str, namespace: str, name: str) -> bool:
    """Whether the glob `pattern` of an EventSource in `own` is for the Model."""
    of_namespace, slash, of_name = pattern.rpartition("/")
    return fnmatchcase(namespace, of_namespace if slash else own) and fnmatchcase(name, of_name)


def is_below(address: str, prefixes: Sequence[str]) -> bool:
    """Whether `address` is one of `prefixes`, or below one: scheme and authority are equal, the path goes on at a `/`.

    Percent escapes are resolved first, where stores do; what has dot segments, escapes elsewhere, or escapes behind
    escapes, is below nothing.
    """
    parts = _parts(address)
    return parts is not None and any(_begins(parts, _prefix(prefix)) for prefix in prefixes)


def _begins(parts: tuple[str, str, str], prefix: tuple[str, str, str] | None) -> bool:
    if prefix is None or parts[0] != prefix[0] or parts[1] != prefix[1]:
        return False
    path, begin = parts[2], prefix[2]
    if not path.startswith(begin):
        return False
    return path == begin or not begin or begin.endswith("/") or path[len(begin)] in _ENDS.get(parts[0], "/")


def _parts(address: str) -> tuple[str, str, str] | None:
    """(scheme, authority, path), resolved; None for what is no plain address."""
    if plain := _PLAIN.fullmatch(address):
        scheme, authority, path = plain.groups()
        return scheme, authority, path
    match = _ADDRESS.fullmatch(address)
    if match is None or _FORBIDDEN.search(address) or not _AUTHORITY.fullmatch(match[2]):
        return None
    if match[4] and match[1].lower() not in _WITH_QUERY:
        return None
    path = _resolved(match[3]) if match[1].lower() in _ESCAPED else match[3]
    if match[1].lower() == "hf" and _PROPOSED.search(path):
        return None
    if "%" in path or _CONTROL.search(path) or any(one in (".", "..") for one in path.split("/")):
        return None
    return match[1].lower(), match[2].lower(), path


_prefix: Final = lru_cache(maxsize=4096)(_parts)
"""Of prefixes, which come again and again; addresses do not."""


def _resolved(path: str) -> str:
    """Without percent escapes; what is no UTF-8 then stays as it is, and is refused for its `%`."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return path
