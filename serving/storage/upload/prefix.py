"""The prefix below which artifacts are stored, `artifacts.prefix` of the settings. Pure.

s3://BUCKET[/PREFIX]          and gs://BUCKET[/PREFIX]:
    PREFIX/sha256/HEX/NAME    a file or archive with this digest
    PREFIX/sha256/HEX/…       the files of a folder with this digest
    PREFIX/sha256/HEX.files   the listing of that folder, written last; its SHA-256 is HEX
oci://REGISTRY/REPOSITORY     images with this model, named by the digest of their manifest
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from serving.storage.base.errors import StorageError
from serving.storage.base.uri_patterns import IMAGE, bucket_fault

BUCKETED: Final = ("s3", "gs")
SCHEMES: Final = (*BUCKETED, "oci")
_PATH: Final = re.compile(r"[^\s?#\\]*")
_LONGEST: Final = 512  # bytes of the prefix; keys have at most 1024


@dataclass(frozen=True, slots=True)
class ArtifactPrefix:
    """A checked prefix: its scheme, the bucket (of `oci`, registry and repository), and the path without slashes."""

    scheme: str
    bucket: str
    path: str

    def key(self, digest: str, rest: str) -> str:
        """Return the key of an artifact's object; `rest` begins with `/` or `.`."""
        kept = f"sha256/{digest.removeprefix('sha256:')}{rest}"
        return f"{self.path}/{kept}" if self.path else kept

    def uri(self, key: str) -> str:
        """Return the URI of a key in the bucket."""
        return f"{self.scheme}://{self.bucket}/{key}"


def prefix_fault(prefix: str) -> str:
    """Return why a text is not a prefix for artifacts; empty for a valid one."""
    scheme, separator, rest = prefix.partition("://")
    form = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or oci://REGISTRY/REPOSITORY"
    if scheme not in SCHEMES or not separator:
        return f"{prefix[:200]!r} is not a prefix for artifacts: {form}"
    if "@" in rest.partition("/")[0]:
        return "must not contain a user or password: everybody who can read the settings would see it"
    if scheme == "oci":
        found = re.fullmatch(IMAGE, prefix)
        if found is None or found["tag"] or found["digest"]:
            return f"{prefix[:200]!r} is not a repository: write oci://REGISTRY/REPOSITORY, without tag and digest"
        return ""
    bucket, _, path = rest.partition("/")
    if fault := bucket_fault(scheme, bucket):
        return fault
    if not _PATH.fullmatch(path) or not path.isprintable() or {"..", "."} & set(path.split("/")) or "//" in path:
        return f"{prefix[:200]!r} has a path that is not a prefix of keys: {form}"
    if len(path.encode()) > _LONGEST:
        return f"{prefix[:200]!r} is too long: at most {_LONGEST} bytes are allowed after the bucket"
    return ""


def parse_prefix(prefix: str) -> ArtifactPrefix:
    """Return the parts of a prefix. Raises StorageError.

    Example:
        parse_prefix("s3://models/team").key("sha256:2c26", "/m.onnx")  # "team/sha256/2c26/m.onnx"
    """
    if fault := prefix_fault(prefix):
        raise StorageError(f"artifacts.prefix: {fault}")
    scheme, _, rest = prefix.partition("://")
    if scheme == "oci":
        return ArtifactPrefix(scheme, rest, "")
    bucket, _, path = rest.partition("/")
    return ArtifactPrefix(scheme, bucket, path.strip("/"))
