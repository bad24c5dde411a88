"""Patterns of the parts of storage URIs, for sources and for the validation of Models. Pure.

The CustomResourceDefinitions contain them too, so they use only the syntax of RE2.
"""

from __future__ import annotations

import re
from typing import Final

BUCKET: Final = r"[a-z0-9][-._a-z0-9]{1,220}[a-z0-9]"
"""Common form of the bucket names of S3 and Google Cloud Storage; `bucket_fault` applies the rules of each."""
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE: Final = (
    r"oci://(?P<host>[-.A-Za-z0-9]+(?::[0-9]{1,5})?|\[[0-9a-f:.]+\](?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][-._A-Za-z0-9]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""Registry, repository, tag and digest by the OCI distribution specification (section "Pulling manifests")."""
HUB: Final = r"hf://(?P<repo>\w[-.\w]{0,95}/\w[-.\w]{0,95})(?:[:@](?P<revision>\w[-.\w]{0,199}))?"
"""A repository of the Hugging Face Hub. No part begins with a dot, since the parts become segments of a URL's path."""

_ADDRESS: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_LONGEST: Final = 63
"""Characters of a bucket name. Google accepts 222 for a name with dots, and 63 between two dots."""


def bucket_fault(scheme: str, bucket: str) -> str:
    """Return why a name is not a valid bucket name of `s3` or `gs`; empty for a valid one.

    The rules are those of the providers: "General purpose bucket naming rules" of Amazon S3 and "Bucket names" of
    Google Cloud Storage.
    """
    extra, longest = ("_", 222 if "." in bucket else _LONGEST) if scheme == "gs" else ("", _LONGEST)
    if not 3 <= len(bucket) <= longest or max(map(len, bucket.split("."))) > _LONGEST:
        return f"{bucket[:_LONGEST]!r} is not a bucket name: it must have 3 to {longest} characters"
    if not re.fullmatch(f"[a-z0-9][-.{extra}a-z0-9]*[a-z0-9]", bucket, re.ASCII) or ".." in bucket:
        also = " and underscores" if extra else ""
        allowed = f"lower-case letters, digits, hyphens, single dots{also}, with a letter or digit at both ends"
        return f"{bucket!r} is not a bucket name: it must consist of {allowed}"
    if _ADDRESS.fullmatch(bucket):
        return f"{bucket!r} is not a bucket name: it must not be an IP address"
    reserved = ("goog",) if scheme == "gs" else ("xn--", "sthree-", "amzn-s3-demo-")
    prefix = next((one for one in reserved if bucket.startswith(one)), "")
    if prefix or (scheme == "gs" and "google" in bucket):
        return f"{bucket!r} is not a bucket name: the provider reserves names with {prefix or 'google'}"
    return ""
