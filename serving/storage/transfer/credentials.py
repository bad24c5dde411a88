"""What opens a store: the keys of a Secret, mounted as the files of a folder, or else the environment.

    KNODEL_CREDENTIALS   the folder; each file's name is a key, as the Secret has it
    s3      AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL
    gs      gcloud-application-credentials.json (as KServe names it), or GOOGLE_APPLICATION_CREDENTIALS, a path
    hf      HF_TOKEN, HF_ENDPOINT
    oci     .dockerconfigjson or config.json; in the environment DOCKER_CONFIG names the folder of the latter

They are read when they are used, so that a Secret that was changed holds from the next download on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.base.sizes import format_size
from serving.storage.base.errors import StorageError

FOLDER: Final = "KNODEL_CREDENTIALS"
LARGEST: Final = 1 << 20  # bytes; Kubernetes' limit of a Secret


class Credentials:
    """The values of a mounted Secret and of an environment; those of the Secret go first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        folder = environ.get(FOLDER)
        self._folder = Path(folder) if folder else None

    def get(self, name: str, default: str = "") -> str:
        """A value without the space around it (editors end files with a line break). Raises StorageError."""
        content = self.file(name)
        return (self.environ.get(name, default) if content is None else content.decode("utf-8", "replace")).strip()

    def together(self, *names: str) -> tuple[str, ...]:
        """Values that belong to each other: of the Secret if it has one of them, else all of the environment.

        Raises StorageError.
        """
        contents = [self.file(name) for name in names]
        if all(content is None for content in contents):
            return tuple(self.environ.get(name, "").strip() for name in names)
        return tuple((content or b"").decode("utf-8", "replace").strip() for content in contents)

    def file(self, name: str) -> bytes | None:
        """The content of a key of the Secret; None when there is none. Raises StorageError."""
        return None if self._folder is None else read(self._folder / name, f"the key {name} of the Secret")


def read(path: Path, what: str) -> bytes | None:
    """A small file; None when it is not there. Raises StorageError, which calls it `what`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{what} cannot be read ({error.strerror}): check how it is mounted") from error
    if len(content) > LARGEST:
        raise StorageError(f"{what} has more than {format_size(LARGEST)}, the limit")
    return content
