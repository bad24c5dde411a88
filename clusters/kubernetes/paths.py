"""Paths of kinds and objects in the Kubernetes API. Pure.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from __future__ import annotations

from urllib.parse import quote

from clusters.base.api import Subresource
from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Kind

_NO_SEGMENTS = ("", ".", "..")
"""Names that would change the path of an object to another one, such as that of the collection."""


def collection_path(kind: Kind, namespace: str | None) -> str:
    """Return the path of all objects of a kind, or of those in one namespace."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not kind.namespaced or namespace is None:
        return f"{root}/{kind.plural}"
    return f"{root}/namespaces/{_segment(kind, 'metadata.namespace', namespace)}/{kind.plural}"


def object_path(kind: Kind, name: str, namespace: str, subresource: Subresource = "") -> str:
    """Return the path of an object or its subresource. Raises Invalid for a name that is not a path segment."""
    path = f"{collection_path(kind, namespace)}/{_segment(kind, 'metadata.name', name)}"
    return f"{path}/{subresource}" if subresource else path


def _segment(kind: Kind, field: str, text: str) -> str:
    if text in _NO_SEGMENTS:
        raise Invalid(str(kind), [FieldError(field, f"{text!r} is not a name" if text else "it is required")])
    return quote(text, safe="")
