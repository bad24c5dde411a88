"""The login of a registry from the user's own Docker configuration, also from its credential helpers.

Sources: https://docs.docker.com/reference/cli/docker/login/#credential-stores and docker-credential-helpers' protocol.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from serving.storage.base.errors import StorageError
from serving.storage.sources.oci_reference import basic_credentials, login_names
from serving.storage.transfer.credentials import Credentials, read_small_file

_HELPER: Final = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,100}")
_TIMEOUT: Final = 30.0  # s; a helper may ask its user
_IDENTITY: Final = "<token>"
"""The user name with which helpers return an identity token, which only some registries accept."""


def docker_login(environ: Mapping[str, str], host: str) -> str:
    """Return the credentials for HTTP Basic (base64) of a registry; "" without any.

    They are those of `.dockerconfigjson` or `config.json` in the folder of KNODEL_CREDENTIALS, else of config.json in
    the folder of DOCKER_CONFIG, by default ~/.docker. Raises StorageError.
    """
    credentials = Credentials(environ)
    config = credentials.file(".dockerconfigjson") or credentials.file("config.json")
    if config is None:
        folder = credentials.get("DOCKER_CONFIG") or Path("~/.docker").expanduser()
        config = read_small_file(Path(folder) / "config.json", "Docker's config.json")
    if config is None:
        return ""
    return _of_helper(config, host) or basic_credentials(config, host)


def _of_helper(config: bytes, host: str) -> str:
    """Return the credentials that the helper of the registry prints; "" without a helper or a login."""
    try:
        found: dict[str, Any] = json.loads(config)
        helpers = found.get("credHelpers") or {}
        names = login_names(host)
        helper = next((helpers[name] for name in names if name in helpers), found.get("credsStore") or "")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""  # `basic_credentials` raises for it
    if not helper:
        return ""
    if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
        raise StorageError(f"Docker's config.json names an invalid credential helper: {str(helper)[:80]!r}")
    for name in names[-1:] if len(names) > 3 else names[:1]:  # the Hub's login has a name of its own
        try:
            ran = subprocess.run(
                [f"docker-credential-{helper}", "get"], input=name.encode(), capture_output=True, timeout=_TIMEOUT
            )
            login = json.loads(ran.stdout) if ran.returncode == 0 else {}
            if isinstance(login, dict) and login.get("Username") not in (None, _IDENTITY):
                return base64.b64encode(f"{login['Username']}:{login.get('Secret', '')}".encode()).decode()
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise StorageError(
                f"docker-credential-{helper} cannot be run ({type(error).__name__}): install it, or log in with "
                f"`docker login {host}`"
            ) from error
    return ""
