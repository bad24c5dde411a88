"""The syntax of names, labels and annotations in Kubernetes, as pure checks that say what is wrong.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and `apimachinery` `validation.go`.
Each check returns an empty text when all is well.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_NAME = 253
"""Characters of a DNS-1123 subdomain."""
LONGEST_LABEL = 63
"""Characters of a DNS label, a label's name and a label's value."""

REMEMBERED = 1024
"""Answers kept by each check of a text that most objects share with others: keys and values of labels, namespaces."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def subdomain_fault(name: str) -> str:
    """What keeps `name` from being a DNS-1123 subdomain (most object names)."""
    if len(name) > LONGEST_NAME:
        return f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_NAME} are allowed"
    if not _SUBDOMAIN.fullmatch(name):
        return f"{name!r} is not a name: use lower-case letters, digits, '-' and '.', a letter or digit at both ends"
    return ""


@lru_cache(REMEMBERED)
def dns_label_fault(name: str) -> str:
    """What keeps `name` from being a DNS-1123 label (namespaces, and names that become host names)."""
    if len(name) > LONGEST_LABEL:
        return f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_LABEL} are allowed"
    if not _DNS_LABEL.fullmatch(name):
        return f"{name!r} is not a name: use lower-case letters, digits and '-', a letter or digit at both ends"
    return ""


@lru_cache(REMEMBERED)
def label_key_fault(key: str) -> str:
    """What keeps `key` from being a qualified name: an optional DNS subdomain and '/', then at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or subdomain_fault(prefix)):
        return f"the part of {key[:80]!r} before '/' must be a DNS name"
    if not name or len(name) > LONGEST_LABEL or not _QUALIFIED.fullmatch(name):
        return (
            f"{key[:80]!r} is not a key: use at most {LONGEST_LABEL} letters, digits, '-', '_' and '.' after an "
            "optional DNS name and '/', a letter or digit at both ends"
        )
    return ""


@lru_cache(REMEMBERED)
def label_value_fault(value: str) -> str:
    """What keeps `value` from being a label's value; the empty value is one."""
    if value and (len(value) > LONGEST_LABEL or not _QUALIFIED.fullmatch(value)):
        return (
            f"{value[:80]!r} is not a label value: use at most {LONGEST_LABEL} letters, digits, '-', '_' and '.', "
            "a letter or digit at both ends"
        )
    return ""
