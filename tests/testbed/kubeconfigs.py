"""Kubeconfigs of the administrator and of the components, with their certificates inside."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.testbed import addresses, files, pki
from tests.testbed.paths import Paths


def ensure(paths: Paths) -> None:
    """Write the kubeconfig of every client; one that is right already is not touched."""
    for name in pki.CLIENTS:
        files.write_document(of(paths, name), document(paths.pki, name))


def of(paths: Paths, client: str) -> Path:
    """Where the kubeconfig of a client of `pki.CLIENTS` is."""
    return paths.kubeconfig if client == pki.ADMIN else paths.pki / f"{client}.kubeconfig"


def document(folder: Path, client: str) -> dict[str, Any]:
    """The kubeconfig (`v1 Config`) of a client whose certificate lies in `folder`."""
    server = {"server": addresses.API_SERVER, "certificate-authority-data": _data(pki.certificate(folder, pki.CA))}
    user = {
        "client-certificate-data": _data(pki.certificate(folder, client)),
        "client-key-data": _data(pki.key(folder, client)),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": addresses.CLUSTER, "cluster": server}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": addresses.CLUSTER, "context": {"cluster": addresses.CLUSTER, "user": client}}],
        "current-context": addresses.CLUSTER,
    }


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
