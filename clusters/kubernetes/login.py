"""Credentials and trust for an API server, loaded by the official client from a kubeconfig or service account.

Only this module imports the `kubernetes` package. Its configuration loader supports kubeconfig files, client
certificates, tokens, exec plugins, OIDC and the refresh of a Pod's token. We use its server, TLS context and headers,
and our own HTTP client.
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
"""An environment variable of every Pod."""
DEFAULT_KUBECONFIG = "~/.kube/config"
LOADER = "kubernetes.aio.config.kube_config"
"""The logger of the client's kubeconfig loader."""
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
"""The fields for impersonation in the user of a kubeconfig."""
BEARER = "BearerToken"
"""The name of the only security scheme in the OpenAPI description of Kubernetes."""


class LoginError(KnodelError):
    """No kubeconfig, context or service account is usable."""


@dataclass(frozen=True, slots=True)
class Login:
    """Server, trust and credentials. It is immutable except for tokens, which the client reads again."""

    server: str
    tls: ssl.SSLContext
    tls_server_name: str | None
    proxy: str | None
    _client: Any

    async def headers(self) -> dict[str, str]:
        """Return the Authorization header, if there is one. The token file of a Pod is read again every minute.

        Raises Unavailable when the file cannot be read now, or contains an invalid token.
        """
        headers: dict[str, str] = {}
        try:
            await self._client.update_params_for_auth(headers, [], [BEARER], "", "", None)
        except Exception as exc:
            raise Unavailable(f"{self.server}: the token cannot be read: {error_text(exc)}") from exc
        headers = {name: value.strip() for name, value in headers.items()}
        if not all(value.isprintable() for value in headers.values()):
            raise Unavailable(f"{self.server}: the token has characters that are invalid in a header: log in again")
        return headers


LogIn = Callable[[], Awaitable[Login]]
"""Load the credentials, initially and for each renewal."""


def login_for(context: str | None, kubeconfig: Path | None) -> LogIn:
    """Return the login by the given kubeconfig or context, else $KUBECONFIG, else this Pod, else ~/.kube/config."""
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
        raise LoginError(f"kubeconfig {files} not found: set KUBECONFIG, or give --kubeconfig FILE")
    configuration = client.Configuration()
    _refuse_impersonation(config, files, context)
    with tempfile.TemporaryDirectory(prefix="knodel-login-") as folder:  # the loader writes private keys to files
        try:
            with _captured_errors() as errors:
                await config.load_kube_config(
                    config_file=files,
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                    temp_file_path=folder,
                )
            if errors:
                raise config.ConfigException("; ".join(errors))
            return _login(client.ApiClient(configuration))
        except Exception as exc:  # the loader raises YAML, OS, TLS and its own errors
            named = f"context {context!r} of " if context else ""
            known = f" (contexts: {_contexts(config, files)})"
            raise LoginError(f"{named}kubeconfig {files} cannot be used: {error_text(exc)}{known}") from exc
        finally:
            config.kube_config._cleanup_temp_files()  # no key remains on disk; there is no await in between


def _refuse_impersonation(config: Any, files: str, context: str | None) -> None:
    """Raise LoginError for a user with impersonation, which the loader would silently ignore."""
    try:
        merged = config.kube_config.KubeConfigMerger(files).config.value
        chosen = _named(merged, "contexts", context or merged["current-context"])["context"]
        user = _named(merged, "users", chosen["user"])["user"]
        impersonated = [key for key in IMPERSONATION if user.get(key)]
    except Exception:  # the loader reports faults of the file better
        return
    if impersonated:
        raise LoginError(
            f"kubeconfig {files}: user {chosen['user']!r} sets {impersonated[0]!r}, which is not supported: "
            "use a context with that user's own credentials"
        )


def _named(config: Any, section: str, name: str) -> Any:
    return next(entry.value for entry in config[section] if entry["name"] == name)


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Collect the errors that the loader logs: it continues without credentials when an exec plugin fails."""
    messages: list[str] = []

    class ErrorCollector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = ErrorCollector(logging.ERROR)
    logger = logging.getLogger(LOADER)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _exists(files: str) -> bool:
    return any(Path(os.path.expanduser(path)).is_file() for path in files.split(os.pathsep))  # noqa: PTH111 - Path's raises without a home


def _login(client: Any) -> Login:
    configuration = client.configuration
    server = configuration.host.rstrip("/")
    if "@" in urlsplit(server).netloc:
        raise LoginError("the server's URL contains a user or password: remove it, and use a token")
    parts = urlsplit(server)
    proxy = configuration.proxy
    if not proxy and not proxy_bypass(parts.hostname or ""):
        proxy = getproxies().get(parts.scheme)
    return Login(
        server=server,
        tls=client.rest_client.ssl_context,
        tls_server_name=configuration.tls_server_name,
        proxy=proxy,
        _client=client,
    )


def _contexts(config: Any, files: str) -> str:
    try:
        contexts, _ = config.list_kube_config_contexts(files)
        return ", ".join(str(context["name"]) for context in contexts) or "none"
    except Exception:  # only a detail of a message about a broken file
        return "unreadable"


def _kubernetes() -> tuple[Any, Any]:
    try:
        from kubernetes.aio import client, config
    except ImportError as exc:
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        raise LoginError(f"the Kubernetes client is not installed: {install_command('knodel[kubernetes]')}") from exc
    return client, config
