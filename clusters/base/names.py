"""The syntax of names, labels and annotations in Kubernetes. Pure.

Each check returns an error message, or an empty text for a valid value.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and `apimachinery` `validation.go`.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_NAME = 253
"""Characters of a DNS-1123 subdomain."""
LONGEST_LABEL = 63
"""Characters of a DNS label, a label's name and a label's value."""

REMEMBERED = 1024
"""Cached results of each check of texts that most objects share: label keys, label values and namespaces."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def subdomain_fault(name: str) -> str:
    """Return why `name` is not a DNS-1123 subdomain (most object names), or an empty text."""
    if len(name) > LONGEST_NAME:
        return f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_NAME} are allowed"
    if not _SUBDOMAIN.fullmatch(name):
        return f"{name!r} is not a name: use lower-case letters, digits, '-' and '.', a letter or digit at both ends"
    return ""


@lru_cache(REMEMBERED)
def dns_label_fault(name: str) -> str:
    """Return why `name` is not a DNS-1123 label (namespaces, names that become host names), or an empty text."""
    if len(name) > LONGEST_LABEL:
        return f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_LABEL} are allowed"
    if not _DNS_LABEL.fullmatch(name):
        return f"{name!r} is not a name: use lower-case letters, digits and '-', a letter or digit at both ends"
    return ""


@lru_cache(REMEMBERED)
def label_key_fault(key: str) -> str:
    """Return why `key` is not a qualified name (optional DNS subdomain and '/', 63 characters), or an empty text."""
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
    """Return why `value` is not a label value, or an empty text. The empty value is valid."""
    if value and (len(value) > LONGEST_LABEL or not _QUALIFIED.fullmatch(value)):
        return (
            f"{value[:80]!r} is not a label value: use at most {LONGEST_LABEL} letters, digits, '-', '_' and '.', "
            "a letter or digit at both ends"
        )
    return ""
