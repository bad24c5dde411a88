"""The table of an EventSource's fields (see `tables`). `eventing.mapping.event_source` has the typed values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Final

from clusters.base.names import LONGEST_LABEL
from clusters.base.objects import EVENT_SOURCE
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from eventing.auth.subjects import ACCOUNT, is_allowed_subject
from eventing.mapping.presets import PRESETS
from eventing.mapping.spec import VALUES
from serving.types import faults, formats
from serving.types.fields import Field, Flag, Format, Text
from serving.types.formats import excludes, follows, matching
from serving.types.model import SecretReference
from serving.types.reader import Reader, short_repr
from serving.types.schema import PRESERVE, PRINTABLE, Schema, plain, record, rule
from serving.types.tables import Items, Nested
from serving.types.validation import KindTable

EITHER: Final = "must have either hmac or oidc: events from senders without authentication are never accepted"
MOST_ENTRIES: Final = 100
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
        form = "a URI reference of ASCII characters without spaces, with * only at its end"
        return f"must be {form}, not {short_repr(source)}"
    return _length_fault(source)


def glob_fault(glob: str) -> str:
    """Return the fault of a pattern for Models; empty for a valid one."""
    if not GLOB.fullmatch(glob):
        return f"must be NAMESPACE/NAME or NAME, with * and ? as wildcards, not {short_repr(glob)}"
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
        f"{short_repr(subject)}: create the EventSource in the namespace of the account, or in {SYSTEM_NAMESPACE}"
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


def _length_fault(text: str, longest: int = LONGEST_TEXT) -> str:
    return "" if len(text) <= longest else f"must be at most {longest} characters, not {len(text)}"


_DOTTED = excludes("[a-z0-9]+://(?:.*/)?[.][.]?(?:/.*)?", prefix_fault, "s3://..")
_WORD = Format(word_fault, LONGEST_TEXT, (follows(f"(?: |{PRINTABLE})+", word_fault, "\n"),))


@dataclass(frozen=True)
class EventMapping(Field):
    """The mapping of foreign events. The schema has field names only: `eventing.mapping` checks the rest."""

    def read(self, value: Any, at: Reader, name: str) -> Mapping[str, Any] | None:
        """Return the mapping."""
        if not isinstance(value, Mapping):
            at.refuse(name, f"must be a mapping, not {short_repr(value)}")
            return None
        from eventing.mapping.mapping import mapping_faults  # the library for its paths takes 0.1 s to import

        at.errors.extend(mapping_faults(value))
        return value

    def schema(self) -> Schema:
        """Return the structural OpenAPI schema."""
        about = {
            "types": "Globs of the event types to map. If absent, all.",
            "when": "JSONPaths (RFC 9535) that must all select something, as strings or {path, otherwise}.",
            "source": "Constant `source` of the resulting event. If absent, that of the event.",
            **{name: f"Template of {name}, or several: the first with a value is used." for name in VALUES},
        }
        preset = f"One of {', '.join(PRESETS)}; other fields override its fields."
        return record(
            "",
            {
                "preset": plain("string", preset, enum=list(PRESETS)),
                **{name: {"description": words, PRESERVE: True} for name, words in about.items()},
            },
        )


@dataclass(frozen=True, slots=True)
class Hmac:
    """Signatures of the body (Standard Webhooks). The Secret has the keys `current` and `previous`."""

    secret_ref: Annotated[SecretReference, Nested("Secret in the namespace of the EventSource.", SecretReference)]


@dataclass(frozen=True, slots=True)
class Oidc:
    """Tokens of an OpenID Connect provider."""

    issuer: Annotated[str, Text("Issuer of the tokens.", matching(ISSUER, issuer_fault, LONGEST_TEXT))]
    audience: Annotated[str, Text("Audience of the tokens.", _WORD)]
    subject: Annotated[str, Text("Subject of the tokens.", _WORD)]


@dataclass(frozen=True, slots=True)
class Auth:
    """Authentication of senders: either hmac or oidc."""

    hmac: Annotated[Hmac | None, Nested("", Hmac)] = None
    oidc: Annotated[Oidc | None, Nested("", Oidc)] = None

    RULES: ClassVar = (rule("has(self.hmac) != has(self.oidc)", EITHER),)

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rule in Python."""
        if (given.get("hmac") is None) == (given.get("oidc") is None):
            yield "", EITHER


@dataclass(frozen=True, slots=True)
class EventSourceSpec:
    """Permissions of the sender."""

    source: Annotated[
        str,
        Text(
            "`source` attribute of its events. A * at the end matches any rest.",
            matching(SOURCE, source_fault, LONGEST_TEXT, bad=" "),
        ),
    ]
    auth: Annotated[Auth, Nested("", Auth)]
    models: Annotated[
        tuple[str, ...],
        Items(
            "Models that its events may change: NAMESPACE/NAME, or NAME for its own namespace.",
            Text("Name of a Model, with * and ? as wildcards.", matching(GLOB, glob_fault, LONGEST_GLOB, bad="-_")),
            MOST_ENTRIES,
        ),
    ]
    storage_prefixes: Annotated[
        tuple[str, ...],
        Items(
            "Permitted prefixes of storage URIs.",
            Text("Prefix of permitted storage URIs.", matching(PREFIX, prefix_fault, LONGEST_TEXT, _DOTTED)),
            MOST_ENTRIES,
        ),
    ]
    allow_code: Annotated[bool, Flag("Whether its events may use formats that run code of the artifact.")] = False
    create_models: Annotated[bool, Flag("Whether its events may create Models.")] = False
    mapping: Annotated[Mapping[str, Any], EventMapping("Mapping of foreign events to changes of Models.")] = field(
        default_factory=dict
    )


def _subject_faults(namespace: str, _: str, spec: EventSourceSpec) -> Iterator[tuple[str, str]]:
    """Check the service account. Its twin in CEL is a ValidatingAdmissionPolicy, since it needs the namespace."""
    subject = spec.auth.oidc.subject if spec.auth.oidc is not None else ""
    if subject and (fault := subject_fault(namespace, subject)):
        yield "spec.auth.oidc.subject", fault


EVENT_SOURCE_TABLE: Final = KindTable(
    EVENT_SOURCE,
    "Permission to send events: the sender, the Models it may change, and the storage of their artifacts.",
    formats.name_format(partial(faults.label_fault, longest=LONGEST_LABEL), LONGEST_LABEL),
    EventSourceSpec,
    faults=_subject_faults,
)
validate_event_source = EVENT_SOURCE_TABLE.validate
