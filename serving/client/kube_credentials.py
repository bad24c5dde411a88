"""The credentials of a user of a kubeconfig: token, client certificate, password, exec plugin.

Plugins: kubernetes.io/docs/reference/config-api/client-authentication.v1. Auth providers, which preceded them, are left
to the `kubernetes` package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from clusters.base.redact import error_text, one_line
from serving.client.errors import ClientError

VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
CLUSTER_CONFIG = "client.authentication.k8s.io/exec"
"""Name of the extension of a cluster that plugins receive."""
AUTHORITY = "certificate-authority"
SKEW = timedelta(seconds=60)
"""A credential that expires earlier is renewed."""
Entry = Mapping[str, Any]


class PluginResult(NamedTuple):
    """What a plugin returned: a token, a client certificate with its key (PEM), or both."""

    token: str
    certificate: str
    key: str
    expires: datetime | None

    @property
    def is_valid(self) -> bool:
        """Whether it is still valid for a while."""
        return self.expires is None or datetime.now(UTC) + SKEW < self.expires


class Credentials:
    """The credentials of the `user` of a context. A plugin runs on first use, and again when its result expires."""

    def __init__(self, context: str, paths: str, user: Entry, cluster: Entry) -> None:
        self._context = context
        self._paths = paths
        self._user = user
        self._cluster = cluster
        self._result: PluginResult | None = None
        has_plugin = isinstance(user.get("exec"), dict)
        self._plugin: Entry = user["exec"] if has_plugin and not user.get("token") and not user.get("tokenFile") else {}

    @property
    def is_current(self) -> bool:
        """Whether the client certificate is still valid, if a plugin has given one."""
        return self._result is None or not self._result.certificate or self._result.is_valid

    def authorization(self) -> str:
        """Return the Authorization header, empty for none. Raises ClientError."""
        user = self._user
        if path := user.get("tokenFile"):
            try:
                return f"Bearer {Path(path).read_text(encoding='utf-8').strip()}"
            except (OSError, UnicodeError) as error:
                raise self.failure(f"{path}: {error_text(error)}") from error
        if user.get("token"):
            return f"Bearer {user['token']}"
        if user.get("username"):
            words = f"{user['username']}:{user.get('password') or ''}"
            return f"Basic {b64encode(words.encode()).decode()}"
        if self._plugin:
            token = self._run_plugin().token
            return f"Bearer {token}" if token else ""
        return self._of_provider() if user.get("auth-provider") else ""

    def certificate(self) -> tuple[bytes, bytes] | None:
        """Return the client certificate and its key (PEM); None without one. Raises ClientError."""
        certificate, key = self.data(self._user, "client-certificate"), self.data(self._user, "client-key")
        if certificate and key:
            return certificate, key
        result = self._run_plugin() if self._plugin else None
        return (result.certificate.encode(), result.key.encode()) if result and result.certificate else None

    def data(self, entry: Entry, name: str) -> bytes | None:
        """Return the content of a field of a user or cluster: of `NAME-data`, else of the file; None without both.

        Raises ClientError.
        """
        try:
            if embedded := entry.get(f"{name}-data"):
                return b64decode(str(embedded), validate=True)
            return Path(entry[name]).read_bytes() if entry.get(name) else None
        except (OSError, ValueError) as error:
            place = entry.get(name) or f"{name}-data"
            raise self.failure(f"{place}: {error_text(error)}") from error

    def failure(self, reason: str) -> ClientError:
        """Return the error for a context whose credentials are not usable."""
        return ClientError(f"context {self._context} of {self._paths} cannot be used: {reason}")

    def _run_plugin(self) -> PluginResult:
        if self._result is None or not self._result.is_valid:
            self._result = self._read_result(self._output_of_plugin())
        return self._result

    def _output_of_plugin(self) -> str:
        plugin, command = self._plugin, str(self._plugin.get("command") or "")
        if not command or plugin.get("apiVersion") not in VERSIONS:
            raise self.failure(f"exec needs a command, and one of the apiVersions {', '.join(VERSIONS)}")
        interactive = plugin.get("interactiveMode") != "Never" and sys.stdin.isatty()
        spec: dict[str, Any] = {"interactive": interactive}
        if plugin.get("provideClusterInfo"):
            spec["cluster"] = self._info()
        info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
        added = {str(one.get("name")): str(one.get("value")) for one in plugin.get("env") or ()}
        try:
            done = subprocess.run(
                [shutil.which(command) or command, *map(str, plugin.get("args") or ())],
                env={**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                text=True,
                check=False,
            )
        except (OSError, ValueError) as error:
            hint = one_line(str(plugin.get("installHint") or "")) or "install it, or log in anew"
            raise self.failure(f"the plugin {command} cannot be run ({error_text(error)}): {hint}") from error
        if done.returncode:
            said = one_line(done.stderr or "")
            raise self.failure(f"the plugin {command} ended with exit code {done.returncode}: {said or 'log in anew'}")
        return done.stdout

    def _info(self) -> dict[str, Any]:
        """Return the cluster as plugins receive it, with the configuration of its extension."""
        cluster = self._cluster
        fields = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        info = {name: cluster[name] for name in fields if cluster.get(name)}
        if authority := self.data(cluster, AUTHORITY):
            info[f"{AUTHORITY}-data"] = b64encode(authority).decode()
        extensions = cluster.get("extensions") or ()
        config = next((one.get("extension") for one in extensions if one.get("name") == CLUSTER_CONFIG), None)
        return {**info, "config": config} if config is not None else info

    def _read_result(self, output: str) -> PluginResult:
        command = self._plugin.get("command")
        try:
            found = json.loads(output)
            status = found["status"]
            expiry = status.get("expirationTimestamp")
            expires = datetime.fromisoformat(expiry) if expiry else None
            if expires is not None and expires.tzinfo is None:
                raise ValueError(f"{expiry} has no time zone")
            token, certificate, key = (
                str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
            )
            result = PluginResult(token, certificate, key, expires)
            version = found["apiVersion"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.failure(f"the plugin {command} did not print an ExecCredential: {error_text(error)}") from error
        if version != self._plugin["apiVersion"]:
            raise self.failure(f"the plugin {command} printed {version}, not {self._plugin['apiVersion']}")
        if not result.token and not (result.certificate and result.key):
            raise self.failure(f"the plugin {command} printed neither a token nor a client certificate with its key")
        return result

    def _of_provider(self) -> str:
        """Return the header of a user with an `auth-provider`, by Kubernetes' own loader. Raises ClientError."""
        try:
            from kubernetes.client import Configuration
            from kubernetes.config import ConfigException, load_kube_config
        except ImportError as error:
            from clusters.base.distribution import install_command

            raise self.failure(
                f"its user has an auth-provider, which needs the package {error.name}: "
                f"`{install_command('knodel[kubernetes]')}` installs it; or use an exec plugin"
            ) from error
        found = Configuration()
        try:
            load_kube_config(self._paths, self._context, found)  # type: ignore[no-untyped-call]
            return found.get_api_key_with_prefix("BearerToken") or ""
        except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.failure(error_text(error)) from error
