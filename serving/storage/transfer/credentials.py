"""Credentials for stores: the keys of a Secret that is mounted as files of a folder, or the environment.

    KNODEL_CREDENTIALS   the folder; the name of each file is a key of the Secret
    s3      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL
    gs      gcloud-application-credentials.json (KServe's name), or GOOGLE_APPLICATION_CREDENTIALS, a path
    hf      HF_TOKEN, HF_ENDPOINT
    oci     .dockerconfigjson or config.json; in the environment, DOCKER_CONFIG names the folder of config.json

Each download reads them again, so it uses the present values of a Secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.base.sizes import format_size
from serving.storage.base.errors import StorageError
from serving.storage.transfer.client import StoreClient, StoreResponse

FOLDER: Final = "KNODEL_CREDENTIALS"
LARGEST: Final = 1 << 20  # bytes of a Secret, the limit of Kubernetes
LARGEST_TOKEN: Final = 1 << 20  # bytes of a response with an access token


class Credentials:
    """The values of a mounted Secret and of an environment; the Secret has precedence."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        folder = environ.get(FOLDER)
        self._folder = Path(folder) if folder else None

    def get(self, name: str, default: str = "") -> str:
        """Return a value without surrounding white space, such as the final newline of a file. Raises StorageError."""
        content = self.file(name)
        return (self.environ.get(name, default) if content is None else content.decode("utf-8", "replace")).strip()

    def get_group(self, *names: str) -> tuple[str, ...]:
        """Return values that belong together: all from the Secret if it has one of them, else all from the environment.

        Raises StorageError.
        """
        contents = [self.file(name) for name in names]
        if all(content is None for content in contents):
            return tuple(self.environ.get(name, "").strip() for name in names)
        return tuple((content or b"").decode("utf-8", "replace").strip() for content in contents)

    def file(self, name: str) -> bytes | None:
        """Return the value of a key of the Secret; None if it is absent. Raises StorageError."""
        return None if self._folder is None else read_small_file(self._folder / name, f"the key {name} of the Secret")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token, and its lifetime in seconds, 0 if unknown."""

    value: str
    expires_in: float = 0.0


def read_access_token(client: StoreClient, response: StoreResponse) -> AccessToken:
    """Return the access token of a response: `access_token` by RFC 6749, section 5.1, or `token` of a registry.

    Raises StorageError.
    """
    try:
        found = json.loads(client.read(response, LARGEST_TOKEN))
        value = found.get("token") or found.get("access_token")
        lifetime = float(found.get("expires_in") or 0)
        if not isinstance(value, str):
            raise TypeError
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(f"{response.name}: the response has no access token") from error
    return AccessToken(value, lifetime)


def read_small_file(path: Path, name: str) -> bytes | None:
    """Return the content of a file of at most LARGEST bytes; None if it is absent. Raises StorageError."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{name} cannot be read ({error.strerror}): check its mount and permissions") from error
    if len(content) > LARGEST:
        raise StorageError(f"{name} has more than {format_size(LARGEST)}, the limit")
    return content
