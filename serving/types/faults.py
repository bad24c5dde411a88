"""What is wrong with single texts of a Model: names, URIs, digests, quantities. Pure; empty when all is well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from autoscaler.warmpool.claims.marks import SEED_PREFIX
from clusters.base.quantities import parse_quantity
from serving.engines.base import registry
from serving.storage.base import patterns
from serving.types.reader import show

LONGEST_NAME = 53
"""Characters of NAME and of NAME-VARIANT: `NAME-00001-deployment` and what Kubernetes appends stay below 63."""
LONGEST_HOST_LABEL = 63
"""Characters of one label of a host name (RFC 1035): TAG-NAME is one."""
LONGEST_URI = 2048
"""Characters; what proxies and browsers pass on."""
LONGEST_VERSION = 253
"""Characters of the free text that people call a version; it is shown in tables."""
RESERVED_TAGS = ("stable", "candidate")
"""Tags that exist only while a rollout runs."""
LONGEST_POOL_NAME = LONGEST_NAME - len(SEED_PREFIX)
"""Characters of a WarmPool's name: that of its seed Configuration has the bound of all Configurations."""
FORMATS = tuple(registry.FORMATS)
CODE_FORMATS = tuple(name for name, made in registry.FORMATS.items() if made.runs_code)
"""Formats that run code of the artifact: only where the namespace allows it (`annotations.LABEL_ALLOW_CODE`)."""
LATER_FORMATS = ("ray",)

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""These patterns stand in the CustomResourceDefinition too: nothing that RE2 has not."""
_PATH = r"(?:/[^?#]*)?"
STORES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "s3": (f"s3://{patterns.BUCKET}{_PATH}", "s3://BUCKET/PATH"),
        "gs": (f"gs://{patterns.BUCKET}{_PATH}", "gs://BUCKET/PATH"),
        "hf": (f"{patterns.HUB}{_PATH}", "hf://ORG/REPO:REVISION"),
        "oci": (patterns.IMAGE, "oci://REGISTRY/REPOSITORY:TAG"),
        "pvc": (f"pvc://{DNS_1123_SUBDOMAIN.pattern}{_PATH}", "pvc://CLAIM/PATH"),
    }
)
"""Schemes of stores: the pattern of their URIs, as above, and how messages write it. `serving.storage` looks closer."""
MLFLOW_SCHEMES = ("runs", "models", "mlflow-artifacts")
"""Of URIs that only a tracking server of MLflow can resolve."""
BUCKETED = ("s3", "gs")
"""Schemes of object stores."""
SCHEMES = ("file", "http", "https", *STORES)
_FORM = "must be a URI such as file:///models/magika or https://host/path"
LONGEST_SUBDOMAIN = 253
"""Characters of the name of most objects."""


def label_fault(name: str, longest: int = LONGEST_NAME) -> str:
    """A DNS-1035 label: a host name and a Knative name are made of it."""
    if not DNS_1035.fullmatch(name):
        return f"must be lower-case letters, digits and '-', a letter first, no '-' last, not {show(name)}"
    if len(name) > longest:
        return f"must be at most {longest} characters, not {len(name)}"
    return ""


def model_name_fault(name: str) -> str:
    """The name of a Model."""
    for tag in RESERVED_TAGS:
        if name.startswith(f"{tag}-"):
            return f"must not begin with {tag}-: that host belongs to the tag {tag!r} of a rollout"
    if name.startswith(SEED_PREFIX):
        return f"must not begin with {SEED_PREFIX}: such names belong to the seeds of WarmPools"
    return label_fault(name)


def pool_name_fault(name: str) -> str:
    """The name of a WarmPool."""
    return label_fault(name, LONGEST_POOL_NAME)


def tag_fault(tag: str) -> str:
    """A user's own tag."""
    if tag in RESERVED_TAGS:
        return f"must not be {tag!r}: that tag exists only while a rollout runs"
    return label_fault(tag, LONGEST_HOST_LABEL)


def subdomain_fault(name: str) -> str:
    """A DNS-1123 subdomain: the name of most Kubernetes objects."""
    if len(name) > LONGEST_SUBDOMAIN or not DNS_1123_SUBDOMAIN.fullmatch(name):
        return f"must be the name of an object: lower-case letters, digits, '-' and '.', not {show(name)}"
    return ""


def version_fault(version: str) -> str:
    """The free text of a version."""
    if not version.isprintable():
        return "must be one line of printable characters"
    if not 1 <= len(version) <= LONGEST_VERSION:
        return f"must be 1 to {LONGEST_VERSION} characters, not {len(version)}"
    return ""


def digest_fault(digest: str) -> str:
    """A SHA-256 digest."""
    return "" if DIGEST.fullmatch(digest) else f"must be sha256: and 64 lower-case hex digits, not {show(digest)}"


def quantity_fault(quantity: str) -> str:
    """A quantity above zero."""
    try:
        return "" if parse_quantity(quantity) > 0 else f"must be more than 0, not {show(quantity)}"
    except ValueError as error:
        return f"{error}, not {show(quantity)}"


def format_fault(name: str) -> str:
    """A model format."""
    if name in FORMATS:
        return ""
    if name in LATER_FORMATS:
        return f"not supported yet: {name}; use {', '.join(FORMATS)}"
    return f"must be one of {', '.join(FORMATS)}, not {show(name)}"


def storage_uri_fault(uri: str) -> str:
    """A URI that the server can fetch from."""
    if len(uri) > LONGEST_URI:
        return f"must be at most {LONGEST_URI} characters, not {len(uri)}"
    if not uri.isprintable() or " " in uri or "\\" in uri:
        return "must have no spaces, backslashes or control characters: write them percent-encoded"
    try:
        parts = urlsplit(uri)
        port_is_usable = parts.port is None or parts.port > 0
    except ValueError:
        return f"{_FORM}, not {show(uri)}"
    if parts.scheme in STORES:
        return _store_fault(parts.scheme, uri)
    if parts.scheme and parts.scheme not in SCHEMES:
        return _scheme_fault(parts.scheme, uri)
    if parts.scheme not in SCHEMES or not port_is_usable:
        return f"{_FORM}, not {show(uri)}"
    return _file_fault(parts, uri) if parts.scheme == "file" else _http_fault(parts, uri)


def claim_of(uri: str) -> str:
    """The PersistentVolumeClaim that a `pvc://CLAIM/PATH` URI names; empty for all other URIs."""
    scheme, _, rest = uri.partition("://")
    return rest.partition("/")[0] if scheme == "pvc" else ""


def _scheme_fault(scheme: str, uri: str) -> str:
    remedy = f"use one of {', '.join(SCHEMES)}"
    if scheme in MLFLOW_SCHEMES:
        fetch = f"`mlflow artifacts download --artifact-uri {uri} --dst-path DIR`"
        remedy = f"{fetch} fetches it; deploy what is in DIR, or the store's own URI of it"
    return f"{_FORM}, not {show(uri)}: the scheme {show(scheme)} is unknown, {remedy}"


def bucket_fault(uri: str) -> str:
    """Return why the bucket of an object store's URI cannot be one; empty when it can, or the URI names none."""
    scheme, _, rest = uri.partition("://")
    bucket = re.split("[/?#]", rest, maxsplit=1)[0] if scheme in BUCKETED else ""
    return patterns.bucket_fault(scheme, bucket) if bucket else ""


def _store_fault(scheme: str, uri: str) -> str:
    pattern, form = STORES[scheme]
    if fault := bucket_fault(uri):
        return f"must be written as in {form}: {fault}"
    if not re.fullmatch(pattern, uri, re.ASCII):
        return f"must be written as in {form}, not {show(uri)}"
    if ".." in uri.partition("://")[2].split("/"):
        return "must not contain '..': write the path as it is"
    return ""


def _file_fault(parts: SplitResult, uri: str) -> str:
    rooted = uri[len("file:") :].startswith("//") and parts.path.startswith("/")
    if parts.netloc not in ("", "localhost") or not rooted or parts.query or parts.fragment:
        return f"must be file:// and an absolute path, as in file:///models/magika, not {show(uri)}"
    if ".." in parts.path.split("/"):
        return "must not contain '..': write the path as it is"
    return ""


def _http_fault(parts: SplitResult, uri: str) -> str:
    if not parts.hostname:
        return f"must name a host, as in https://host/path, not {show(uri)}"
    if parts.username is not None or parts.password is not None:
        return "must not carry a user or password: anybody who reads the Model would see them"
    return "must not have a fragment (#…): it is never sent" if parts.fragment else ""
