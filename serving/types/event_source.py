"""Validate an EventSource, with all faults at once. Pure; `eventing.mapping.event_source` has the typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clusters.base.errors import FieldError
from clusters.base.names import LONGEST_LABEL, dns_label_fault
from clusters.base.objects import EVENT_SOURCE, Object
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from eventing.auth.subjects import ACCOUNT, is_allowed_subject
from serving.types import faults
from serving.types.reader import Fault, Fields, short_repr
from serving.types.validation import other_than

MOST_ENTRIES = 100
"""Entries of `models` and of `storagePrefixes`: each event is compared with all of them."""
LONGEST_TEXT = 1024
"""Characters of a source, issuer, audience, subject or prefix."""
LONGEST_GLOB = 2 * LONGEST_LABEL + 1

SOURCE = re.compile(r"[!-)+-~]+\*?|\*")
GLOB = re.compile(r"[-a-z0-9*?]+(?:/[-a-z0-9*?]+)?")
ISSUER = re.compile(r"https://[^\s?#]+")
PREFIX = re.compile(rf"(?:{'|'.join(faults.SCHEMES)})://[^\s?#%\\]*")
_DOTS = re.compile(r"(?:.*/)?\.\.?(?:/.*)?")
"""These patterns are also in the CustomResourceDefinition, so they use only features of RE2."""


def source_fault(source: str) -> str:
    """Return the fault of a pattern for `source` attributes; empty for a valid one."""
    if not SOURCE.fullmatch(source):
        return f"must be a URI reference of ASCII letters without spaces, a * only at its end, not {short_repr(source)}"
    return _length_fault(source)


def glob_fault(glob: str) -> str:
    """Return the fault of a pattern for Models; empty for a valid one."""
    if not GLOB.fullmatch(glob):
        return f"must be NAMESPACE/NAME or NAME, with * and ? for any letters, not {short_repr(glob)}"
    return _length_fault(glob, LONGEST_GLOB)


def issuer_fault(issuer: str) -> str:
    """Return the fault of an issuer of tokens; empty for a valid one."""
    return (
        _length_fault(issuer) if ISSUER.fullmatch(issuer) else f"must be an https:// address, not {short_repr(issuer)}"
    )


def word_fault(word: str) -> str:
    """Return the fault of an audience or a subject; empty for a valid one."""
    if not word or not word.isprintable():
        return "must be one line of printable characters"
    return _length_fault(word)


def subject_fault(namespace: str, subject: str) -> str:
    """Return the fault of a service account in an EventSource in `namespace`; empty for a permitted one."""
    if not namespace or is_allowed_subject(namespace, subject):
        return ""
    return (
        f"must be a service account of the EventSource's own namespace, as in {ACCOUNT}{namespace}:NAME, not "
        f"{short_repr(subject)}: or make the EventSource there, or in {SYSTEM_NAMESPACE}"
    )


def prefix_fault(prefix: str) -> str:
    """Return the fault of a prefix of storage URIs; empty for a valid one. Prefixes are compared as text."""
    if not PREFIX.fullmatch(prefix):
        return f"must begin as in s3://bucket/folder/, without '%', '?', '#' and spaces, not {short_repr(prefix)}"
    if _DOTS.fullmatch(prefix.partition("://")[2]):
        return "must not contain '.' or '..' as a folder: write the path as it is"
    if fault := faults.bucket_fault(prefix):
        return f"must begin as in s3://bucket/folder/: {fault}"
    return _length_fault(prefix)


def validate_event_source(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return every fault of `new`.

    Without a change to the fields that callers write there are none, so that the status can always be written.
    """
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
        from eventing.mapping.mapping import mapping_faults  # the library for its paths takes 0.1 s to import

        spec.errors.extend(mapping_faults(mapping))


def _check_texts(fields: Fields, name: str, fault: Fault) -> None:
    value = fields.raw(name)
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_ENTRIES:
        fields.refuse(name, f"is required: a list of 1 to {MOST_ENTRIES} texts, not {short_repr(value)}")
        return
    for index, entry in enumerate(value):
        words = fault(entry) if isinstance(entry, str) else f"must be a text, not {short_repr(entry)}"
        if words:
            fields.refuse(f"{name}[{index}]", words)


def _length_fault(text: str, longest: int = LONGEST_TEXT) -> str:
    return "" if len(text) <= longest else f"must be at most {longest} characters, not {len(text)}"


def _written(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
