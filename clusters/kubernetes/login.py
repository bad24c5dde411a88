"""Who we are to an API server and how we trust it, read by the official client: kubeconfig or service account.

The one module that imports the `kubernetes` package. Its configuration loader knows kubeconfig files, client
certificates, tokens, exec plugins, OIDC and the refreshing of a Pod's token; we take server, TLS context and headers
from it and speak HTTP ourselves.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from clusters.base.errors import KnodelError, Unavailable
from clusters.base.redact import error_text

SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
"""Set in every Pod."""
DEFAULT_KUBECONFIG = "~/.kube/config"
LOADER = "kubernetes.aio.config.kube_config"
"""Logger of the client's kubeconfig loader."""
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a kubeconfig's user."""
BEARER = "BearerToken"
"""Name of the only security scheme in Kubernetes' API description."""


class LoginError(KnodelError):
    """There is no usable kubeconfig, context or service account."""


@dataclass(frozen=True, slots=True)
class Login:
    """Server, trust and credentials; immutable but for tokens, which the client re-reads by itself."""

    server: str
    tls: ssl.SSLContext
    tls_server_name: str | None
    proxy: str | None
    _client: Any

    async def headers(self) -> dict[str, str]:
        """The Authorization header, if there is one; a Pod's token file is re-read every minute.

        Raises Unavailable when that file cannot be read at the moment, or holds what cannot be sent.
        """
        headers: dict[str, str] = {}
        try:
            await self._client.update_params_for_auth(headers, [], [BEARER], "", "", None)
        except Exception as exc:
            raise Unavailable(f"{self.server}: the token cannot be read: {error_text(exc)}") from exc
        headers = {name: value.strip() for name, value in headers.items()}
        if not all(value.isprintable() for value in headers.values()):
            raise Unavailable(f"{self.server}: the token has characters that no header may have: log in again")
        return headers


LogIn = Callable[[], Awaitable[Login]]
"""Reads the credentials (again)."""


def login_for(context: str | None, kubeconfig: Path | None) -> LogIn:
    """How to log in: the given kubeconfig or context, else $KUBECONFIG, else as this Pod, else ~/.kube/config."""
    if kubeconfig is None and context is None and not os.environ.get("KUBECONFIG") and os.environ.get(SERVICE_HOST):
        return _as_service_account
    files = str(kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser(DEFAULT_KUBECONFIG))  # noqa: PTH111 - Path's raises without a home

    async def log_in() -> Login:
        return await _by_kubeconfig(files, context)

    return log_in


async def _as_service_account() -> Login:
    client, config = _kubernetes()
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        return _login(client.ApiClient(configuration))
    except (config.ConfigException, OSError) as exc:
        raise LoginError(f"the Pod's service account cannot be used: {exc}: mount its token") from exc


async def _by_kubeconfig(files: str, context: str | None) -> Login:
    client, config = _kubernetes()
    if not _exists(files):
        raise LoginError(f"there is no kubeconfig {files}: set KUBECONFIG, or give --kubeconfig FILE")
    configuration = client.Configuration()
    _refuse_impersonation(config, files, context)
    with tempfile.TemporaryDirectory(prefix="knodel-login-") as folder:  # the loader writes keys to files
        try:
            with _complaints() as complaints:
                await config.load_kube_config(
                    config_file=files,
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                    temp_file_path=folder,
                )
            if complaints:
                raise config.ConfigException("; ".join(complaints))
            return _login(client.ApiClient(configuration))
        except Exception as exc:  # the loader lets what it meets through: YAML, OS, TLS and its own errors
            named = f"context {context!r} of " if context else ""
            known = f" (contexts: {_contexts(config, files)})"
            raise LoginError(f"{named}kubeconfig {files} cannot be used: {error_text(exc)}{known}") from exc
        finally:
            config.kube_config._cleanup_temp_files()  # no key stays on disk; nothing here waits in between


def _refuse_impersonation(config: Any, files: str, context: str | None) -> None:
    """Raise LoginError for a user that acts as somebody else: the loader would act as the user itself, unasked."""
    try:
        merged = config.kube_config.KubeConfigMerger(files).config.value
        chosen = _named(merged, "contexts", context or merged["current-context"])["context"]
        user = _named(merged, "users", chosen["user"])["user"]
        impersonated = [key for key in IMPERSONATION if user.get(key)]
    except Exception:  # what is wrong with the file, the loader says better
        return
    if impersonated:
        raise LoginError(
            f"kubeconfig {files}: user {chosen['user']!r} sets {impersonated[0]!r}, which is not supported: "
            "use a context with that user's own credentials"
        )


def _named(config: Any, section: str, name: str) -> Any:
    return next(entry.value for entry in config[section] if entry["name"] == name)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the loader logs as errors: it goes on without credentials when an exec plugin fails."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ear = Ear(logging.ERROR)
    logger = logging.getLogger(LOADER)
    logger.addHandler(ear)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)


def _exists(files: str) -> bool:
    return any(Path(os.path.expanduser(path)).is_file() for path in files.split(os.pathsep))  # noqa: PTH111 - Path's raises without a home


def _login(client: Any) -> Login:
    configuration = client.configuration
    server = configuration.host.rstrip("/")
    if "@" in urlsplit(server).netloc:
        raise LoginError("the server's URL has a user or password in it: take it out, and give the user a token")
    return Login(
        server=server,
        tls=client.rest_client.ssl_context,
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy or _proxy_of_environment(server),
        _client=client,
    )


def _proxy_of_environment(server: str) -> str | None:
    parts = urlsplit(server)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _contexts(config: Any, files: str) -> str:
    try:
        contexts, _ = config.list_kube_config_contexts(files)
        return ", ".join(str(context["name"]) for context in contexts) or "none"
    except Exception:  # only decorates a message about a file that is broken
        return "unreadable"


def _kubernetes() -> tuple[Any, Any]:
    try:
        from kubernetes.aio import client, config
    except ImportError as exc:
        raise LoginError("the Kubernetes client is not installed: pip install 'knodel[kubernetes]'") from exc
    return client, config
