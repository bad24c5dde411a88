"""What a mapping may make of a text that it found: `{$.data.name | label}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from packageurl import PackageURL

_NO_LABEL: Final = re.compile(r"[^a-z0-9]+")


def label(text: str) -> str | None:
    """A name as Models have them (RFC 1123 label): `Fraud_Model 2` becomes `fraud-model-2`."""
    return _NO_LABEL.sub("-", text.lower()).strip("-") or None


def address(text: str) -> str | None:
    """The text if it is an address `scheme://…`; MLflow has names like `models:/m-1`, which nobody else can resolve."""
    return text if "://" in text else None


def purl(text: str) -> str | None:
    """The address of a package URL (github.com/package-url/purl-spec): of an OCI artifact `oci://`, of a Hugging Face
    model `hf://`, of a generic package its download_url; of all others nothing."""
    try:
        package = PackageURL.from_string(text)
    except ValueError:
        return None
    qualifiers = package.qualifiers if isinstance(package.qualifiers, dict) else {}
    match package.type:
        case "oci":
            return _oci(qualifiers, package.version)
        case "huggingface":
            name = f"{package.namespace}/{package.name}" if package.namespace else package.name
            return f"hf://{name}" + (f"@{package.version}" if package.version else "")
        case "generic":
            return qualifiers.get("download_url")
    return None


def _oci(qualifiers: Mapping[str, str], digest: str | None) -> str | None:
    """`repository_url` is the whole name of the repository, the version is the manifest's digest."""
    repository, tag = qualifiers.get("repository_url"), qualifiers.get("tag")
    if not repository or not (digest or tag):
        return None
    repository = repository.partition("://")[2] or repository
    return f"oci://{repository}@{digest}" if digest else f"oci://{repository}:{tag}"


TRANSFORMS: Final[Mapping[str, Callable[[str], str | None]]] = MappingProxyType(
    {"address": address, "label": label, "purl": purl}
)
"""By the name that mappings use."""
