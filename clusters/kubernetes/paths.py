"""Where kinds and objects stand in the API: paths by the rules of the Kubernetes API. Pure.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from __future__ import annotations

from urllib.parse import quote

from clusters.base.api import Subresource
from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Kind

_NO_SEGMENTS = ("", ".", "..")
"""Names that would make the path of an object that of something else, the whole collection first of all."""


def collection_path(kind: Kind, namespace: str | None) -> str:
    """The path of all objects of the kind, or of those in one namespace."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not kind.namespaced or namespace is None:
        return f"{root}/{kind.plural}"
    return f"{root}/namespaces/{_segment(kind, 'metadata.namespace', namespace)}/{kind.plural}"


def object_path(kind: Kind, name: str, namespace: str, subresource: Subresource = "") -> str:
    """The path of one object, or of its subresource. Raises Invalid for a name that is no path segment."""
    path = f"{collection_path(kind, namespace)}/{_segment(kind, 'metadata.name', name)}"
    return f"{path}/{subresource}" if subresource else path


def _segment(kind: Kind, field: str, text: str) -> str:
    if text in _NO_SEGMENTS:
        raise Invalid(str(kind), [FieldError(field, f"{text!r} names nothing" if text else "it is required")])
    return quote(text, safe="")
