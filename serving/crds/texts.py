"""Schemas of the strings of a Model: names, URIs, digests, durations, quantities. Pure.

The message of each rule is that of the same check in `serving.types.faults`.
"""

from __future__ import annotations

from clusters.base import durations, quantities
from clusters.base.durations import format_duration
from serving.crds.schema import Schema, choice, matches, quoted, rule, text, words_of
from serving.types import faults

PRINTABLE = r"[^\pC\pZ]"
"""An RE2 pattern: no control or format character and no white space (what Python's `isprintable` refuses, and ' ')."""
PORT = r"6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|0*[1-9]\d{0,3}"
"""1 to 65535."""


def label(about: str, longest: int = faults.LONGEST_NAME, *rules: Schema) -> Schema:
    """Return the schema of a DNS-1035 label."""
    return text(about, longest, rule(matches(faults.DNS_1035.pattern), words_of(faults.label_fault, "-")), *rules)


def tag(about: str) -> Schema:
    """Return the schema of a tag that is not reserved."""
    reserved = (rule(f"self != {quoted(one)}", faults.tag_fault(one)) for one in faults.RESERVED_TAGS)
    return label(about, faults.LONGEST_HOST_LABEL, *reserved)


def subdomain(about: str) -> Schema:
    """Return the schema of the name of an object."""
    syntax = rule(matches(faults.DNS_1123_SUBDOMAIN.pattern), words_of(faults.subdomain_fault, "-"))
    return text(about, faults.LONGEST_SUBDOMAIN, syntax)


def version(about: str) -> Schema:
    """Return the schema of a version label."""
    printable = rule(matches(f"(?: |{PRINTABLE})*"), words_of(faults.version_fault, "\n"))
    return text(about, faults.LONGEST_VERSION, printable, least=1)


def digest(about: str) -> Schema:
    """Return the schema of a SHA-256 digest."""
    longest = len("sha256:") + 64
    return text(about, longest, rule(matches(faults.DIGEST.pattern), words_of(faults.digest_fault, "-")))


def model_format(about: str) -> Schema:
    """Return the schema of a model format. Formats that are not supported yet are refused by name."""
    later = (rule(f"self != {quoted(one)}", words_of(faults.format_fault, one)) for one in faults.LATER_FORMATS)
    return choice(about, (*faults.FORMATS, *faults.LATER_FORMATS), words_of(faults.format_fault, "-"), *later)


def storage_uri(about: str) -> Schema:
    """Return the schema of a storage URI."""

    def unless(scheme: str, pattern: str) -> str:
        return f"!{matches(f'(?i:{scheme}):.*')} || {matches(pattern)}"

    stores = (
        rule(unless(scheme, pattern), words_of(faults.storage_uri_fault, f"{scheme}:-"))
        for scheme, (pattern, _) in faults.STORES.items()
    )
    rooted = "|".join(("file", *faults.STORES))
    host = rf"(?:\[[0-9A-Za-z:.%]+\]|[^/?#@:\[\]]+)(?::(?:{PORT})?)?"
    http = rf"(?i:https?)://(?:[^/?#]*@)?{host}(?:[/?#].*)?"
    return text(
        about,
        faults.LONGEST_URI,
        rule(matches(r"(?:[^\pC\pZ\\])*"), words_of(faults.storage_uri_fault, " ")),
        rule(matches(f"(?i:{'|'.join(faults.SCHEMES)}):.*"), words_of(faults.storage_uri_fault, "-")),
        *stores,
        rule(unless("file", r"(?i:file)://(?:localhost)?/[^?#]*"), words_of(faults.storage_uri_fault, "file:-")),
        rule(f"!{matches(f'(?i:{rooted}):(?:.*/)?[.][.](?:/.*)?')}", words_of(faults.storage_uri_fault, "file:///..")),
        rule(unless("https?", http), words_of(faults.storage_uri_fault, "http://")),
        rule(f"!{matches('(?i:https?)://[^/?#]*@.*')}", words_of(faults.storage_uri_fault, "http://u@h/m")),
        rule(f"!{matches('(?i:https?):[^#]*#.*')}", words_of(faults.storage_uri_fault, "http://h/m#f")),
    )


def duration(about: str, least: float, most: float, whole: bool = False, word: str = "") -> Schema:
    """Return the schema of a duration from `least` to `most` seconds, in whole seconds if `whole`, or of `word`."""
    syntax = matches(durations.DURATION.pattern)
    bounds = f"must be at least {format_duration(least)} and at most {format_duration(most)}"
    low, high = (f"duration({quoted(format_duration(bound))})" for bound in (least, most))
    rules = [
        rule(
            f"self == {quoted(word)} || {syntax}" if word else syntax, "must be a duration such as 300s, 10m or 1h30m"
        ),
        rule(f"!{syntax} || (duration(self) >= {low} && duration(self) <= {high})", bounds),
    ]
    if whole:
        whole_part = "timestamp(duration(self).getSeconds())"
        rules.append(rule(f"!{syntax} || timestamp(0) + duration(self) == {whole_part}", "must be in whole seconds"))
    return text(about, durations.LONGEST_TEXT, *rules)


def quantity(about: str) -> Schema:
    """Return the schema of a quantity above zero, as a string or an integer. A fraction must be a string."""
    syntax = matches(quantities.QUANTITY.pattern)
    number = f"!{syntax} || quantity(self).isGreaterThan(quantity('0'))"
    return {
        "description": about,
        "x-kubernetes-int-or-string": True,
        "maxLength": quantities.LONGEST_TEXT,
        "x-kubernetes-validations": [
            rule(f"type(self) != string || {syntax}", words_of(faults.quantity_fault, "-")),
            rule(f"type(self) == string ? ({number}) : self > 0", words_of(faults.quantity_fault, "0")),
        ],
    }
