"""Validate an EventSource and collect every fault of it. Pure; `eventing.mapping.event_source` has the typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clusters.base.errors import FieldError
from clusters.base.names import LONGEST_LABEL, dns_label_fault
from clusters.base.objects import EVENT_SOURCE, Object
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from eventing.auth.subjects import ACCOUNT, may_name
from serving.types import faults
from serving.types.reader import Fault, Fields, show
from serving.types.validation import other_than

MOST_ENTRIES = 100
"""Of `models` and of `storagePrefixes`: each event is held against all of them."""
LONGEST_TEXT = 1024
"""Characters of a source, an issuer, an audience, a subject, and of a prefix."""
LONGEST_GLOB = 2 * LONGEST_LABEL + 1

SOURCE = re.compile(r"[!-)+-~]+\*?|\*")
GLOB = re.compile(r"[-a-z0-9*?]+(?:/[-a-z0-9*?]+)?")
ISSUER = re.compile(r"https://[^\s?#]+")
PREFIX = re.compile(rf"(?:{'|'.join(faults.SCHEMES)})://[^\s?#%\\]*")
_DOTS = re.compile(r"(?:.*/)?\.\.?(?:/.*)?")
"""These patterns stand in the CustomResourceDefinition too: nothing that RE2 has not."""


def source_fault(source: str) -> str:
    """Which `source` attributes it is for."""
    if not SOURCE.fullmatch(source):
        return f"must be a URI reference of ASCII letters without spaces, a * only at its end, not {show(source)}"
    return _length_fault(source)


def glob_fault(glob: str) -> str:
    """Which Models."""
    if not GLOB.fullmatch(glob):
        return f"must be NAMESPACE/NAME or NAME, with * and ? for any letters, not {show(glob)}"
    return _length_fault(glob, LONGEST_GLOB)


def issuer_fault(issuer: str) -> str:
    """Who gives out tokens."""
    return _length_fault(issuer) if ISSUER.fullmatch(issuer) else f"must be an https:// address, not {show(issuer)}"


def word_fault(word: str) -> str:
    """An audience or a subject."""
    if not word or not word.isprintable():
        return "must be one line of printable characters"
    return _length_fault(word)


def subject_fault(namespace: str, subject: str) -> str:
    """Whether an EventSource in `namespace` is for that service account."""
    if not namespace or may_name(namespace, subject):
        return ""
    return (
        f"must be a service account of the EventSource's own namespace, as in {ACCOUNT}{namespace}:NAME, not "
        f"{show(subject)}: or make the EventSource there, or in {SYSTEM_NAMESPACE}"
    )


def prefix_fault(prefix: str) -> str:
    """What a storageUri may begin with: written as it is, so that it can be compared."""
    if not PREFIX.fullmatch(prefix):
        return f"must begin as in s3://bucket/folder/, without '%', '?', '#' and spaces, not {show(prefix)}"
    if _DOTS.fullmatch(prefix.partition("://")[2]):
        return "must not contain '.' or '..' as a folder: write the path as it is"
    if fault := faults.bucket_fault(prefix):
        return f"must begin as in s3://bucket/folder/: {fault}"
    return _length_fault(prefix)


def validate_event_source(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Every fault of `new`; none when all that callers write is as in `old`, so that a status can always be written."""
    if old is not None and _written(old) == _written(new):
        return ()
    errors: list[FieldError] = []
    top = Fields(new, "", errors)
    for name, expected in (("apiVersion", EVENT_SOURCE.api_version), ("kind", EVENT_SOURCE.kind)):
        top.text(name, partial(other_than, expected), required=True)
    metadata = top.child("metadata")
    metadata.text("name", partial(faults.label_fault, longest=LONGEST_LABEL), required=True)
    namespace = metadata.text("namespace", dns_label_fault)
    top.raw("status")
    if (spec := top.part("spec", required=True)) is not None:
        _check_spec(spec, namespace)
    top.close()
    return errors


def _check_spec(spec: Fields, namespace: str) -> None:
    spec.text("source", source_fault, required=True)
    _check_auth(spec, namespace)
    _check_texts(spec, "models", glob_fault)
    _check_texts(spec, "storagePrefixes", prefix_fault)
    spec.flag("allowCode")
    spec.flag("createModels")
    _check_mapping(spec)
    spec.close()


def _check_auth(spec: Fields, namespace: str) -> None:
    auth = spec.part("auth", required=True)
    if auth is None:
        return
    if auth.has("hmac") == auth.has("oidc"):
        auth.refuse("", "must say either hmac or oidc: events without proof of their sender are never taken")
    if (hmac := auth.part("hmac")) is not None:
        if (reference := hmac.part("secretRef", required=True)) is not None:
            reference.text("name", faults.subdomain_fault, required=True)
            reference.close()
        hmac.close()
    if (oidc := auth.part("oidc")) is not None:
        oidc.text("issuer", issuer_fault, required=True)
        oidc.text("audience", word_fault, required=True)
        oidc.text("subject", lambda subject: word_fault(subject) or subject_fault(namespace, subject), required=True)
        oidc.close()
    auth.close()


def _check_mapping(spec: Fields) -> None:
    spec.part("mapping")
    mapping = spec.raw("mapping")
    if isinstance(mapping, Mapping):
        from eventing.mapping.mapping import (
            mapping_faults,  # its paths are a library's matter that takes 0.1 s to import
        )

        spec.errors.extend(mapping_faults(mapping))


def _check_texts(fields: Fields, name: str, fault: Fault) -> None:
    value = fields.raw(name)
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_ENTRIES:
        fields.refuse(name, f"is required: a list of 1 to {MOST_ENTRIES} texts, not {show(value)}")
        return
    for index, entry in enumerate(value):
        words = fault(entry) if isinstance(entry, str) else f"must be a text, not {show(entry)}"
        if words:
            fields.refuse(f"{name}[{index}]", words)


def _length_fault(text: str, longest: int = LONGEST_TEXT) -> str:
    return "" if len(text) <= longest else f"must be at most {longest} characters, not {len(text)}"


def _written(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
