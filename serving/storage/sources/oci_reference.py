"""References to OCI artifacts, `oci://REGISTRY/REPOSITORY[:TAG][@sha256:…]`, and logins for them. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from clusters.net.ssrf import is_loopback
from serving.storage.base.errors import StorageError
from serving.storage.base.patterns import IMAGE
from serving.storage.transfer.addresses import parse, shown

_LONGEST: Final = 255  # characters of a repository
_HUB: Final = "docker.io"  # a repository that it calls `busybox` is `library/busybox` there
_HUB_API: Final = "registry-1.docker.io"
_HUB_LOGIN: Final = "https://index.docker.io/v1/"


@dataclass(frozen=True, slots=True)
class Reference:
    """A registry's host (with port), a repository, a tag, and the digest that a manifest of it must have ("": any)."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def base(self) -> str:
        """The address of the repository's API: plain HTTP on loopback, as container runtimes have it, else HTTPS."""
        host = _HUB_API if self.host == _HUB else self.host
        scheme = "http" if is_loopback(parse(f"http://{host}").host) else "https"
        return f"{scheme}://{host}/v2/{self.repository}"

    @property
    def manifest(self) -> str:
        """What the manifest is asked for by."""
        return self.digest or self.tag


def reference_of(uri: str) -> Reference:
    """Raises StorageError."""
    found = re.fullmatch(IMAGE, uri)
    if found is None or len(found["repository"]) > _LONGEST:
        raise StorageError(f"{shown(uri)}: write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:…")
    repository = found["repository"]
    if found["host"] == _HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(found["host"], repository, found["tag"] or "latest", found["digest"] or "")


def login_of(config: bytes, host: str) -> str:
    """What follows `Basic ` for a registry, from a Docker config.json; "" when it has nothing. Raises StorageError."""
    names = (host, f"https://{host}", f"http://{host}", *((_HUB_LOGIN,) if host == _HUB else ()))
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
            "make it with kubectl create secret docker-registry"
        ) from error
    return ""
