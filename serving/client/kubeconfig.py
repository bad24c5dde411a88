"""Read the contexts of a kubeconfig with the loader of the `kubernetes` package.

Only this module and `api_server` import that package, and only when a context is given. The loader supports merged
files, tokens, client certificates, exec plugins and OIDC. `api_server` adds TLS and proxies for `http.client`.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clusters.base.redact import error_text, redact
from serving.client.errors import ClientError, UsageError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from serving.client.api_server import ApiServer

DEFAULT_PATH = "~/.kube/config"
NAMESPACE = "default"  # for a context without a namespace
BEARER = "BearerToken"  # key under which the loader stores the Authorization header
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KubeContext:
    """A context of a kubeconfig. `paths` are the files, joined as in KUBECONFIG."""

    name: str
    namespace: str
    paths: str
    user: Entry = field(default_factory=dict, repr=False)
    cluster: Entry = field(default_factory=dict, repr=False)

    @classmethod
    def find(cls, name: str, environ: Mapping[str, str] = os.environ) -> KubeContext:
        """Return the context `name` of KUBECONFIG, else of ~/.kube/config.

        Raises UsageError for an unknown context, ClientError when the files cannot be read or the package is absent.
        """
        paths = environ.get("KUBECONFIG") or DEFAULT_PATH
        config = _merged(paths)
        contexts = _entries(config, "contexts", "context")
        if name not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise UsageError(f"--kube-context: {paths} has no context {name!r}: known contexts are {known}")
        context = contexts[name]
        user = _entries(config, "users", "user").get(str(context.get("user")), {})
        cluster = _entries(config, "clusters", "cluster").get(str(context.get("cluster")), {})
        return cls(name, str(context.get("namespace") or NAMESPACE), paths, user, cluster)

    def connect(self) -> ApiServer:
        """Return the API server with its credentials; runs an exec plugin. Raises ClientError."""
        from serving.client.api_server import ApiServer

        impersonated = [key for key in IMPERSONATION if self.user.get(key)]
        if impersonated:
            raise ClientError(
                f"context {self.name}: its user sets `{impersonated[0]}`, but knodel does not support impersonation: "
                "use a context with that user's own credentials"
            )
        with tempfile.TemporaryDirectory(prefix="knodel-") as folder:  # for keys of the kubeconfig, until TLS has them
            found = self._load(folder)
            proxy = str(self.cluster.get("proxy-url") or "")
            return ApiServer(self.name, found, proxy, lambda: self._authorization(found))

    def _load(self, folder: str) -> Configuration:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        found = Configuration()
        with _collected_errors() as errors:
            try:
                load_kube_config(self.paths, self.name, found, temp_file_path=folder)  # type: ignore[no-untyped-call]
            except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ClientError(f"context {self.name} of {self.paths} cannot be used: {error_text(error)}") from error
        self._check_no_errors(errors)
        return found

    def _authorization(self, found: Configuration) -> str:
        """Return the Authorization header, empty for none; the loader renews expired credentials."""
        with _collected_errors() as errors:
            header = found.get_api_key_with_prefix(BEARER)
        self._check_no_errors(errors)
        return header or ""

    def _check_no_errors(self, errors: list[str]) -> None:
        """Raise ClientError for errors that the loader logged: it continues without credentials if a plugin fails."""
        if errors:
            raise ClientError(f"context {self.name}: its credentials cannot be loaded: {'; '.join(errors)}")


def contexts_of(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of all contexts. Raises ClientError."""
    return list(_entries(_merged(environ.get("KUBECONFIG") or DEFAULT_PATH), "contexts", "context"))


def _merged(paths: str) -> Entry:
    """Merge the files of the kubeconfig; for a name in several files the first one wins. Raises ClientError."""
    try:
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigMerger
    except ImportError as error:
        raise ClientError(
            f"--kube-context needs the package `kubernetes` ({error}): `pip install 'knodel[kubernetes]'` installs it"
        ) from error
    import yaml

    try:
        merged = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ClientError(f"the kubeconfig {paths} cannot be read: {error_text(error)}") from error
    if merged is None:
        raise ClientError(f"no kubeconfig found at {paths}: create one, or set KUBECONFIG to its path")
    value: Entry = merged.value
    return value


def _entries(config: Entry, plural: str, singular: str) -> dict[str, Entry]:
    """Return name → content of the entries in the list `plural`. The merger wraps entries and does not check them."""
    found: dict[str, Entry] = {}
    for wrapped in config.get(plural) or ():
        entry = getattr(wrapped, "value", wrapped)
        if isinstance(entry, dict) and "name" in entry:
            content = entry.get(singular)
            found[str(entry["name"])] = content if isinstance(content, dict) else {}
    return found


@contextmanager
def _collected_errors() -> Iterator[list[str]]:
    """Collect the messages of errors that are logged in the block, instead of printing them."""
    found: list[str] = []

    class Collect(logging.Handler):
        """Collects the messages of errors."""

        def emit(self, record: logging.LogRecord) -> None:
            """Collect one message."""
            if record.levelno >= logging.ERROR:
                found.append(redact(record.getMessage()))

    root = logging.getLogger()
    former, root.handlers = root.handlers, [Collect()]
    try:
        yield found
    finally:
        root.handlers = former
