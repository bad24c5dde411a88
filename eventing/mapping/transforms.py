"""Transforms of selected texts in a mapping, such as `{$.data.name | label}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from packageurl import PackageURL

_NO_LABEL: Final = re.compile(r"[^a-z0-9]+")


def label(text: str) -> str | None:
    """Return the text as a name of a Model (RFC 1123 label): `Fraud_Model 2` becomes `fraud-model-2`."""
    return _NO_LABEL.sub("-", text.lower()).strip("-") or None


def address(text: str) -> str | None:
    """Return the text if it is a URI `scheme://…`, else None: only MLflow can resolve its own `models:/m-1`."""
    return text if "://" in text else None


def purl(text: str) -> str | None:
    """Return the storage URI of a package URL (github.com/package-url/purl-spec), None for unsupported types.

    An OCI artifact becomes `oci://`, a Hugging Face model `hf://`, a generic package its download_url.
    """
    try:
        package = PackageURL.from_string(text)
    except ValueError:
        return None
    qualifiers = package.qualifiers if isinstance(package.qualifiers, dict) else {}
    match package.type:
        case "oci":
            # `repository_url` is the repository's full name, the version is the manifest's digest.
            repository, tag = qualifiers.get("repository_url", ""), qualifiers.get("tag")
            repository = repository.partition("://")[2] or repository
            if not repository or not (package.version or tag):
                return None
            return f"oci://{repository}@{package.version}" if package.version else f"oci://{repository}:{tag}"
        case "huggingface":
            name = f"{package.namespace}/{package.name}" if package.namespace else package.name
            return f"hf://{name}" + (f"@{package.version}" if package.version else "")
        case "generic":
            return qualifiers.get("download_url")
    return None


TRANSFORMS: Final[Mapping[str, Callable[[str], str | None]]] = MappingProxyType(
    {"address": address, "label": label, "purl": purl}
)
"""Transforms by their name in mappings."""
