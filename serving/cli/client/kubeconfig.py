"""The contexts of a kubeconfig. With `api_server`, all of the command that imports the `kubernetes` package.

It is imported when a context is named and not before. Its loader knows merged files, tokens, client certificates, exec
plugins and OIDC; what it leaves to its own client (TLS, proxies) is made in `api_server` for the standard library's.
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
from serving.cli.base.errors import CommandError, UsageError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from serving.cli.client.api_server import ApiServer

DEFAULT_PATH = "~/.kube/config"
NAMESPACE = "default"  # of a context that names none
BEARER = "BearerToken"  # where the loader puts the whole Authorization header
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KubeContext:
    """A context that a kubeconfig has. `paths` are its files, as KUBECONFIG joins them."""

    name: str
    namespace: str
    paths: str
    user: Entry = field(default_factory=dict, repr=False)
    cluster: Entry = field(default_factory=dict, repr=False)

    @classmethod
    def find(cls, name: str, environ: Mapping[str, str] = os.environ) -> KubeContext:
        """The context of that name in KUBECONFIG, else in ~/.kube/config.

        Raises UsageError when there is none, CommandError when the files cannot be read or the package is absent.
        """
        paths = environ.get("KUBECONFIG") or DEFAULT_PATH
        config = _merged(paths)
        contexts = _entries(config, "contexts", "context")
        if name not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise UsageError(f"--kube-context: {paths} has no context {name!r}; known: {known}")
        context = contexts[name]
        user = _entries(config, "users", "user").get(str(context.get("user")), {})
        cluster = _entries(config, "clusters", "cluster").get(str(context.get("cluster")), {})
        return cls(name, str(context.get("namespace") or NAMESPACE), paths, user, cluster)

    def connect(self) -> ApiServer:
        """Its API server, with credentials: an exec plugin runs here. Raises CommandError."""
        from serving.cli.client.api_server import ApiServer

        impersonated = [key for key in IMPERSONATION if self.user.get(key)]
        if impersonated:
            raise CommandError(
                f"context {self.name}: its user sets `{impersonated[0]}`, and knodel cannot act as somebody else: "
                "use a context with that user's own credentials"
            )
        with tempfile.TemporaryDirectory(prefix="knodel-") as folder:  # keys of the kubeconfig, until TLS has read them
            found = self._load(folder)
            proxy = str(self.cluster.get("proxy-url") or "")
            return ApiServer(self.name, found, proxy, lambda: self._authorization(found))

    def _load(self, folder: str) -> Configuration:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        found = Configuration()
        with _complaints() as complaints:
            try:
                load_kube_config(self.paths, self.name, found, temp_file_path=folder)  # type: ignore[no-untyped-call]
            except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise CommandError(
                    f"context {self.name} of {self.paths} cannot be used: {error_text(error)}"
                ) from error
        self._refuse(complaints)
        return found

    def _authorization(self, found: Configuration) -> str:
        """The Authorization header, empty for none; the loader renews what expires."""
        with _complaints() as complaints:
            header = found.get_api_key_with_prefix(BEARER)
        self._refuse(complaints)
        return header or ""

    def _refuse(self, complaints: list[str]) -> None:
        """The loader logs that a plugin failed, and goes on without credentials: we do not."""
        if complaints:
            raise CommandError(f"context {self.name}: its credentials cannot be had: {'; '.join(complaints)}")


def contexts_of(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names of all contexts. Raises CommandError."""
    return list(_entries(_merged(environ.get("KUBECONFIG") or DEFAULT_PATH), "contexts", "context"))


def _merged(paths: str) -> Entry:
    """The kubeconfig that the files make together, first come first served."""
    try:
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigMerger
    except ImportError as error:
        raise CommandError(
            f"--kube-context needs the package `kubernetes` ({error}): `pip install 'knodel[kubernetes]'`"
        ) from error
    import yaml

    try:
        merged = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise CommandError(f"the kubeconfig {paths} cannot be read: {error_text(error)}") from error
    if merged is None:
        raise CommandError(f"there is no kubeconfig at {paths}: set KUBECONFIG, or write one there")
    value: Entry = merged.value
    return value


def _entries(config: Entry, plural: str, singular: str) -> dict[str, Entry]:
    """Name → what stands under it. The merger wraps every entry, and has checked none."""
    found: dict[str, Entry] = {}
    for wrapped in config.get(plural) or ():
        entry = getattr(wrapped, "value", wrapped)
        if isinstance(entry, dict) and "name" in entry:
            content = entry.get(singular)
            found[str(entry["name"])] = content if isinstance(content, dict) else {}
    return found


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What is logged as an error meanwhile, instead of printing it."""
    found: list[str] = []

    class Collect(logging.Handler):
        """Keeps messages of errors."""

        def emit(self, record: logging.LogRecord) -> None:
            """Keep one."""
            if record.levelno >= logging.ERROR:
                found.append(redact(record.getMessage()))

    root = logging.getLogger()
    former, root.handlers = root.handlers, [Collect()]
    try:
        yield found
    finally:
        root.handlers = former
