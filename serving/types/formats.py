"""Formats of texts: names, URIs, digests. Each has its check in `faults`, and the same check as CEL rules. Pure.

The message of a CEL rule is that of the check, for a text that breaks the rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from autoscaler import schedules
from autoscaler.warmpool.claims.marks import SEED_PREFIX
from serving.types import faults
from serving.types.fields import Format
from serving.types.reader import Fault, short_repr
from serving.types.schema import PRINTABLE, Schema, matches, message_of, quoted, rule

LONGEST_WORD: Final = 64
"""Maximum length of an enumerated text. The API server uses it to estimate the cost of rules."""
PORT: Final = r"6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|0*[1-9]\d{0,3}"  # 1 to 65535, in RE2
LINE: Final = f"(?: |{PRINTABLE})*"
"""An RE2 pattern of one line of printable characters, which may be empty."""


def follows(pattern: str, fault: Fault, bad: str = "-") -> Schema:
    """Return the rule that all of a text matches a pattern, with the message of `fault` for `bad`."""
    return rule(matches(pattern), message_of(fault, bad))


def excludes(pattern: str, fault: Fault, bad: str) -> Schema:
    """Return the rule that a text does not match a pattern, with the message of `fault` for `bad`."""
    return rule(f"!{matches(pattern)}", message_of(fault, bad))


def matching(pattern: re.Pattern[str], fault: Fault, longest: int, *rules: Schema, bad: str = "-") -> Format:
    """Return the format of texts that match a pattern. `bad` is one that does not."""
    simple = "" if "(?i:" in pattern.pattern else pattern.pattern  # JSON Schema has no inline flags
    return Format(fault, longest, (follows(pattern.pattern, fault, bad), *rules), pattern=simple)


def one_of(*choices: str) -> Format:
    """Return the format of an enumerated text."""
    message = f"must be {' or '.join(choices)}"

    def fault(value: str) -> str:
        return "" if value in choices else f"{message}, not {short_repr(value)}"

    return _enumerated(choices, fault)


def name_format(fault: Fault, longest: int, reserved: Sequence[str] = ()) -> Format:
    """Return the format of `metadata.name`: a DNS-1035 label without the reserved prefixes. Its rules are of the root,
    since a definition may say nothing else about metadata.
    """
    name, field = "self.metadata.name", ".metadata.name"
    syntax = matches(faults.DNS_1035.pattern).replace("self", name, 1)
    rules = [rule(f"!{name}.startsWith('{prefix}')", fault(prefix), field) for prefix in reserved]
    rules.append(rule(syntax, message_of(fault, "-"), field))
    rules.append(rule(f"size({name}) <= {longest}", message_of(fault, "x" * (longest + 1)), field))
    return Format(fault, longest, tuple(rules), pattern=faults.DNS_1035.pattern)


def _enumerated(choices: Sequence[str], fault: Fault) -> Format:
    """Return a format of some texts. It has a rule, because an `enum` does not accept null."""
    listed = rule(f"self in [{', '.join(map(quoted, choices))}]", message_of(fault, "-"))
    return Format(fault, LONGEST_WORD, (listed,), choices=tuple(choices))


def _storage_uri() -> Format:
    fault = faults.storage_uri_fault

    def unless(scheme: str, pattern: str) -> str:
        return f"!{matches(f'(?i:{scheme}):.*')} || {matches(pattern)}"

    stores = (
        rule(unless(scheme, pattern), message_of(fault, f"{scheme}:-"))
        for scheme, (pattern, _) in faults.STORES.items()
    )
    rooted = "|".join(("file", *faults.STORES))
    host = rf"(?:\[[0-9A-Za-z:.%]+\]|[^/?#@:\[\]]+)(?::(?:{PORT})?)?"
    http = rf"(?i:https?)://(?:[^/?#]*@)?{host}(?:[/?#].*)?"
    rules = (
        follows(r"(?:[^\pC\pZ\\])*", fault, " "),
        follows(f"(?i:{'|'.join(faults.SCHEMES)}):.*", fault),
        *stores,
        rule(unless("file", r"(?i:file)://(?:localhost)?/[^?#]*"), message_of(fault, "file:-")),
        excludes(f"(?i:{rooted}):(?:.*/)?[.][.](?:/.*)?", fault, "file:///.."),
        rule(unless("https?", http), message_of(fault, "http://")),
        excludes("(?i:https?)://[^/?#]*@.*", fault, "http://u@h/m"),
        excludes("(?i:https?):[^#]*#.*", fault, "http://h/m#f"),
    )
    return Format(fault, faults.LONGEST_URI, rules, example="s3://models/iris/7/")


LABEL: Final = matching(faults.DNS_1035, faults.label_fault, faults.LONGEST_NAME)
TAG: Final = matching(
    faults.DNS_1035,
    faults.tag_fault,
    faults.LONGEST_HOST_LABEL,
    *(rule(f"self != {quoted(one)}", faults.tag_fault(one)) for one in faults.RESERVED_TAGS),
)
SUBDOMAIN: Final = matching(faults.DNS_1123_SUBDOMAIN, faults.subdomain_fault, faults.LONGEST_SUBDOMAIN)
VERSION: Final = Format(
    faults.version_fault, faults.LONGEST_VERSION, (follows(LINE, faults.version_fault, "\n"),), least=1
)
DIGEST: Final = matching(faults.DIGEST, faults.digest_fault, len("sha256:") + 64)
CRON: Final = replace(matching(schedules.CRON, schedules.cron_fault, schedules.LONGEST_CRON), example="0 8 * * 1-5")
ZONE: Final = replace(matching(schedules.ZONE, schedules.zone_fault, schedules.LONGEST_ZONE), example="Europe/Berlin")
MODEL_FORMAT: Final = _enumerated(faults.FORMATS, faults.format_fault)
PROTOCOL: Final = _enumerated(faults.PROTOCOLS, faults.protocol_fault)
STORAGE_URI: Final = _storage_uri()
STORAGE_URI_FORM: Final = f"a text such as {STORAGE_URI.example}"
MODEL_NAME: Final = name_format(
    faults.model_name_fault, faults.LONGEST_NAME, (*(f"{tag}-" for tag in faults.RESERVED_TAGS), SEED_PREFIX)
)
POOL_NAME: Final = name_format(faults.pool_name_fault, faults.LONGEST_POOL_NAME)
