"""Check single values of a Model: names, URIs, digests, quantities. Checks return a fault, empty if valid. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from autoscaler.warmpool.claims.marks import SEED_PREFIX
from clusters.base.redact import redact_url
from serving.engines.base import registry
from serving.storage.base import uri_patterns
from serving.types.reader import short_repr

LONGEST_NAME = 53
"""Characters of NAME and NAME-VARIANT: `NAME-00001-deployment` and the suffixes of Kubernetes must fit in 63."""
LONGEST_HOST_LABEL = 63
"""Characters of one label of a host name (RFC 1035), such as TAG-NAME."""
LONGEST_URI = 2048
"""Characters that proxies and browsers accept."""
LONGEST_VERSION = 253
"""Characters of a version label, which is free text shown in tables."""
RESERVED_TAGS = ("stable", "candidate")
"""Tags that exist only while a rollout runs."""
LONGEST_POOL_NAME = LONGEST_NAME - len(SEED_PREFIX)
"""Characters of a WarmPool's name: the name of its seed has the limit of all Configurations."""
FORMATS = tuple(registry.FORMATS)
CODE_FORMATS = tuple(name for name, made in registry.FORMATS.items() if made.runs_code)
"""Formats that run code of the artifact. The namespace must allow them (`annotations.LABEL_ALLOW_CODE`)."""
LLM_FORMATS = registry.LLM_FORMATS
"""Formats of language models, which may have `spec.llm`."""
GROUP_FORMATS = ("ray", "vllm")
"""Formats whose replicas may have worker Pods, `spec.workers`."""
PROTOCOLS = ("http1",)

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""These patterns are also in the CustomResourceDefinition, so they use only features of RE2."""
_PATH = r"(?:/[^?#]*)?"
STORES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "s3": (f"s3://{uri_patterns.BUCKET}{_PATH}", "s3://BUCKET/PATH"),
        "gs": (f"gs://{uri_patterns.BUCKET}{_PATH}", "gs://BUCKET/PATH"),
        "hf": (f"{uri_patterns.HUB}{_PATH}", "hf://ORG/REPO:REVISION"),
        "oci": (uri_patterns.IMAGE, "oci://REGISTRY/REPOSITORY:TAG"),
        "pvc": (f"pvc://{DNS_1123_SUBDOMAIN.pattern}{_PATH}", "pvc://CLAIM/PATH"),
    }
)
"""Schemes of stores, each with the pattern of its URIs and their form in messages. `serving.storage` checks details."""
MLFLOW_SCHEMES = ("runs", "models", "mlflow-artifacts")
"""Schemes of URIs that only a tracking server of MLflow can resolve."""
BUCKETED = ("s3", "gs")
"""Schemes of object stores."""
SCHEMES = ("file", "http", "https", *STORES)
_FORM = "must be a URI such as file:///models/magika or https://host/path"
LONGEST_SUBDOMAIN = 253
"""Characters of the names of most objects."""


def label_fault(name: str, longest: int = LONGEST_NAME) -> str:
    """Check a DNS-1035 label, which becomes part of host names and Knative names."""
    if not DNS_1035.fullmatch(name):
        form = "lower-case letters, digits and '-', beginning with a letter and not ending with '-'"
        return f"must be {form}, not {short_repr(name)}"
    if len(name) > longest:
        return f"must be at most {longest} characters, not {len(name)}"
    return ""


def model_name_fault(name: str) -> str:
    """Check the name of a Model."""
    for tag in RESERVED_TAGS:
        if name.startswith(f"{tag}-"):
            return f"must not begin with {tag}-: such hosts are reserved for the tag {tag!r} of a rollout"
    if name.startswith(SEED_PREFIX):
        return f"must not begin with {SEED_PREFIX}: such names are reserved for the seeds of WarmPools"
    return label_fault(name)


def pool_name_fault(name: str) -> str:
    """Check the name of a WarmPool."""
    return label_fault(name, LONGEST_POOL_NAME)


def tag_fault(tag: str) -> str:
    """Check a tag in `spec.traffic`."""
    if tag in RESERVED_TAGS:
        return f"must not be {tag!r}: this tag is reserved for rollouts"
    return label_fault(tag, LONGEST_HOST_LABEL)


def subdomain_fault(name: str) -> str:
    """Check a DNS-1123 subdomain, the form of most names in Kubernetes."""
    if len(name) > LONGEST_SUBDOMAIN or not DNS_1123_SUBDOMAIN.fullmatch(name):
        return f"must be the name of an object: lower-case letters, digits, '-' and '.', not {short_repr(name)}"
    return ""


def version_fault(version: str) -> str:
    """Check a version label."""
    if not version.isprintable():
        return "must be one line of printable characters"
    if not 1 <= len(version) <= LONGEST_VERSION:
        return f"must be 1 to {LONGEST_VERSION} characters, not {len(version)}"
    return ""


def digest_fault(digest: str) -> str:
    """Check a SHA-256 digest."""
    return "" if DIGEST.fullmatch(digest) else f"must be sha256: and 64 lower-case hex digits, not {short_repr(digest)}"


def format_fault(name: str) -> str:
    """Check a model format."""
    if name in FORMATS:
        return ""
    return f"must be one of {', '.join(FORMATS)}, not {short_repr(name)}"


def protocol_fault(protocol: str) -> str:
    """Check the protocol of a Model's port."""
    return "" if protocol in PROTOCOLS else f"not supported yet; use {PROTOCOLS[0]}, not {short_repr(protocol)}"


def storage_uri_fault(uri: str) -> str:
    """Check a storage URI: the model server must be able to fetch from it."""
    if len(uri) > LONGEST_URI:
        return f"must be at most {LONGEST_URI} characters, not {len(uri)}"
    if not uri.isprintable() or " " in uri or "\\" in uri:
        return "must have no spaces, backslashes or control characters: write them percent-encoded"
    _, separator, rest = uri.partition("://")
    if separator and "@" in rest.partition("/")[0]:
        return "must not contain a user or password: everybody who can read the Model would see it"
    try:
        parts = urlsplit(uri)
        port_is_usable = parts.port is None or parts.port > 0
    except ValueError:
        return f"{_FORM}, not {_shown(uri)}"
    if parts.scheme in STORES:
        return _store_fault(parts.scheme, uri)
    if parts.scheme and parts.scheme not in SCHEMES:
        return _scheme_fault(parts.scheme, uri)
    if parts.scheme not in SCHEMES or not port_is_usable:
        return f"{_FORM}, not {_shown(uri)}"
    return _file_fault(parts, uri) if parts.scheme == "file" else _http_fault(parts, uri)


def claim_of(uri: str) -> str:
    """Return the PersistentVolumeClaim of a `pvc://CLAIM/PATH` URI; empty for other URIs."""
    scheme, _, rest = uri.partition("://")
    return rest.partition("/")[0] if scheme == "pvc" else ""


def _shown(uri: str) -> str:
    return short_repr(redact_url(uri))


def _scheme_fault(scheme: str, uri: str) -> str:
    remedy = f"use one of {', '.join(SCHEMES)}"
    if scheme in MLFLOW_SCHEMES:
        remedy = (
            f"`knodel deploy NAME --uri {uri}` resolves it by the tracking server of MLFLOW_TRACKING_URI; a Model "
            "names the files in the artifact store"
        )
    return f"{_FORM}, not {_shown(uri)}: the scheme {short_repr(scheme)} is unknown, {remedy}"


def bucket_fault(uri: str) -> str:
    """Check the bucket of an object store's URI; empty also for URIs without a bucket."""
    scheme, _, rest = uri.partition("://")
    bucket = re.split("[/?#]", rest, maxsplit=1)[0] if scheme in BUCKETED else ""
    return uri_patterns.bucket_fault(scheme, bucket) if bucket else ""


def _store_fault(scheme: str, uri: str) -> str:
    pattern, form = STORES[scheme]
    if fault := bucket_fault(uri):
        return f"must be written as in {form}: {fault}"
    if not re.fullmatch(pattern, uri, re.ASCII):
        return f"must be written as in {form}, not {_shown(uri)}"
    if ".." in uri.partition("://")[2].split("/"):
        return "must not contain '..': write the path as it is"
    return ""


def _file_fault(parts: SplitResult, uri: str) -> str:
    rooted = uri[len("file:") :].startswith("//") and parts.path.startswith("/")
    if parts.netloc not in ("", "localhost") or not rooted or parts.query or parts.fragment:
        return f"must be file:// and an absolute path, as in file:///models/magika, not {_shown(uri)}"
    if ".." in parts.path.split("/"):
        return "must not contain '..': write the path as it is"
    return ""


def _http_fault(parts: SplitResult, uri: str) -> str:
    if not parts.hostname:
        return f"must have a host, as in https://host/path, not {_shown(uri)}"
    return "must not have a fragment (#…): it is never sent" if parts.fragment else ""
