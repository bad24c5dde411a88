"""Read the contexts of a kubeconfig, as kubectl does.

The `kubernetes` package takes most of a second to import, and needs compiled packages. So the command reads the files
itself. Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. `kube_credentials` has the credentials
of a user, and `api_server` adds TLS and proxies for `http.client`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusters.base.errors import KnodelError
from clusters.base.redact import error_text
from serving.client.errors import ClientError, UsageError
from serving.client.home import expand_home

if TYPE_CHECKING:
    from serving.client.api_server import ApiServer

DEFAULT_PATH = "~/.kube/config"
NAMESPACE = "default"  # for a context without a namespace
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields with a path, which is relative to the folder of its file."""
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KubeContext:
    """A context of a kubeconfig. `paths` are the files, joined as in KUBECONFIG."""

    name: str
    namespace: str
    paths: str
    user: Entry = field(default_factory=dict, repr=False)
    cluster: Entry = field(default_factory=dict, repr=False)
    _connected: list[ApiServer] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def find(cls, name: str, environ: Mapping[str, str] = os.environ) -> KubeContext:
        """Return the context `name` of KUBECONFIG, else of ~/.kube/config.

        Raises UsageError for an unknown context, ClientError when the files cannot be read.
        """
        paths = environ.get("KUBECONFIG") or DEFAULT_PATH
        files = _read(paths)
        contexts = _entries(files, "contexts", "context")
        if name not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise UsageError(f"--kube-context: {paths} has no context {name!r}: known contexts are {known}")
        context = contexts[name]
        user = _entries(files, "users", "user").get(str(context.get("user")), {})
        cluster = _entries(files, "clusters", "cluster").get(str(context.get("cluster")), {})
        return cls(name, str(context.get("namespace") or NAMESPACE), paths, user, cluster)

    def connect(self) -> ApiServer:
        """Return the API server with its credentials; runs an exec plugin. Raises ClientError.

        It is the same one each time, so that its connections are reused, until its client certificate expires.
        """
        if self._connected and self._connected[-1].is_current:
            return self._connected[-1]
        from serving.client.api_server import ApiServer
        from serving.client.kube_credentials import Credentials

        impersonated = [key for key in IMPERSONATION if self.user.get(key)]
        if impersonated:
            raise ClientError(
                f"context {self.name}: its user sets `{impersonated[0]}`, but knodel does not support impersonation: "
                "use a context with that user's own credentials"
            )
        credentials = Credentials(self.name, self.paths, self.user, self.cluster)
        self._connected[:] = [ApiServer(self.name, self.cluster, credentials)]
        return self._connected[-1]


def contexts_of(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of all contexts. Raises ClientError."""
    return list(_entries(_read(environ.get("KUBECONFIG") or DEFAULT_PATH), "contexts", "context"))


def current_context(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of kubectl's current context, from the first file that has one; empty for none.

    Raises ClientError.
    """
    found = (content.get("current-context") for _, content in _read(environ.get("KUBECONFIG") or DEFAULT_PATH))
    return next((str(name) for name in found if name), "")


def _read(paths: str) -> list[tuple[Path, Entry]]:
    """Return (path, content) of each file that exists. Raises ClientError."""
    from clusters.net.strict_yaml import load_documents  # heavy; only clusters need it

    found: list[tuple[Path, Entry]] = []
    for path in (expand_home(one) for one in paths.split(os.pathsep) if one):
        try:
            documents = load_documents(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            continue
        except (KnodelError, OSError, UnicodeError) as error:
            raise ClientError(f"the kubeconfig {path} cannot be read: {error_text(error)}") from error
        content = documents[0] if len(documents) == 1 else None
        if not isinstance(content, dict):
            raise ClientError(f"the kubeconfig {path} cannot be read: it is not one YAML mapping")
        found.append((path.absolute(), content))
    if not found:
        raise ClientError(f"no kubeconfig found at {paths}: create one, or set KUBECONFIG to its path")
    return found


def _entries(files: list[tuple[Path, Entry]], plural: str, singular: str) -> dict[str, Entry]:
    """Return name → content of the entries in the lists `plural`; the first file with a name wins.

    Raises ClientError.
    """
    found: dict[str, Entry] = {}
    for path, content in files:
        listed = content.get(plural) or []
        if not isinstance(listed, list) or not all(isinstance(one, dict) and one.get("name") for one in listed):
            raise ClientError(f"the kubeconfig {path} cannot be read: {plural} is not a list of entries with names")
        for one in listed:
            entry = one.get(singular)
            made = _with_paths(entry if isinstance(entry, dict) else {}, path.parent)
            found.setdefault(str(one["name"]), made)
    return found


def _with_paths(entry: Entry, folder: Path) -> Entry:
    """Return the entry with absolute paths, also that of an exec plugin unless it is searched on PATH."""
    made = {key: str(folder / str(value)) if key in PATHS and value else value for key, value in entry.items()}
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.path.basename(command := str(plugin.get("command", ""))) != command:  # noqa: PTH119
        made["exec"] = {**plugin, "command": str(folder / command)}
    return made
