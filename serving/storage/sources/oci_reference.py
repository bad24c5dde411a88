"""References to OCI images, `oci://REGISTRY/REPOSITORY[:TAG][@sha256:…]`, and their logins. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from clusters.base.redact import redact_url
from clusters.net.ssrf import is_loopback
from serving.storage.base.errors import StorageError
from serving.storage.base.uri_patterns import IMAGE
from serving.storage.transfer.urls import parse_url

_LONGEST: Final = 255  # characters of a repository
_HUB: Final = "docker.io"  # its repository `busybox` is short for `library/busybox`
_HUB_API: Final = "registry-1.docker.io"
_HUB_LOGIN: Final = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The host of a registry (with port), a repository, a tag, and the digest of the manifest ("": not given)."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def base(self) -> str:
        """The URL of the repository's API: plain HTTP on loopback, as in container runtimes, else HTTPS."""
        host = _HUB_API if self.host == _HUB else self.host
        scheme = "http" if is_loopback(parse_url(f"http://{host}").host) else "https"
        return f"{scheme}://{host}/v2/{self.repository}"

    @property
    def manifest(self) -> str:
        """The digest of the manifest, else its tag."""
        return self.digest or self.tag


def parse_reference(uri: str) -> ImageReference:
    """Parse an `oci://` URI. Raises StorageError."""
    found = re.fullmatch(IMAGE, uri)
    if found is None or len(found["repository"]) > _LONGEST:
        raise StorageError(
            f"{redact_url(uri)}: write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:…"
        )
    repository = found["repository"]
    if found["host"] == _HUB and "/" not in repository:
        repository = f"library/{repository}"
    return ImageReference(found["host"], repository, found["tag"] or "latest", found["digest"] or "")


def login_names(host: str) -> tuple[str, ...]:
    """Return the names that a Docker config.json may have for the login of a registry."""
    return (host, f"https://{host}", f"http://{host}", *((_HUB_LOGIN,) if host == _HUB else ()))


def basic_credentials(config: bytes, host: str) -> str:
    """Return the credentials of a registry for HTTP Basic (base64) from a Docker config.json; "" if there are none.

    Raises StorageError for an invalid config.json.
    """
    names = login_names(host)
    try:
        logins: dict[str, Any] = json.loads(config).get("auths", {})
        for login in (logins[name] for name in names if name in logins):
            if "username" in login and "password" in login:
                return base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
            base64.b64decode(login["auth"], validate=True)
            return str(login["auth"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise StorageError(
            f"the Docker config.json of the Secret cannot be read ({type(error).__name__}): "
            "create it with kubectl create secret docker-registry"
        ) from error
    return ""
