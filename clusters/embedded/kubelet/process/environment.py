"""The environment of a container's process: little of the node's, what the container declares, then the contract's."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from clusters.base.objects import Object, name_of, namespace_of, uid_of
from clusters.embedded.kubelet.process.errors import BadContainerConfig
from clusters.embedded.kubelet.process.images import expand

# Marks in the environment of every process of a node: how they are found again when no record of them is left.
PROCESS_OF: Final = "KNODEL_PROCESS_OF"  # the state folder of the platform that started it
PROCESS_HOME: Final = "KNODEL_PROCESS_HOME"  # the same folder, by device and inode: copies of it are other folders
PROCESS_ROLE: Final = "KNODEL_PROCESS_ROLE"  # "pod", "zygote", …
POD_UID: Final = "KNODEL_POD_UID"  # for role "pod"
TERMINATION_LOG: Final = "KNODEL_TERMINATION_LOG"  # where the process writes why it ends

_FROM_NODE: Final = frozenset({"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH",
                               "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
                               "http_proxy", "https_proxy", "no_proxy"})  # fmt: skip
"""What a process needs of the machine; the rest (keys and tokens of the user's shell) stays out, as in a container."""

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""(namespace, name) → decoded values, or None when there is no such Secret."""


def node_environment(node: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of the node's environment that every process gets."""
    return {name: value for name, value in (os.environ if node is None else node).items() if name in _FROM_NODE}


async def declared_environment(pod: Object, container: Object, read_secret: ReadSecret) -> dict[str, str]:
    """`container.env`, in order, with `$(NAME)` and `valueFrom` resolved. Raises BadContainerConfig."""
    env: dict[str, str] = {}
    for entry in container.get("env") or ():
        name = str(entry["name"])
        source = entry.get("valueFrom")
        value = expand(str(entry.get("value") or ""), env) if not source else await _look_up(pod, source, read_secret)
        if value is None:
            continue
        if "\0" in value or "=" in name or not name:
            raise BadContainerConfig(f"env {name!r}: a name has no '=' and a value no NUL byte")
        env[name] = value
    return env


async def _look_up(pod: Object, source: Mapping[str, Any], read_secret: ReadSecret) -> str | None:
    if "fieldRef" in source:
        return _field(pod, str(source["fieldRef"].get("fieldPath", "")))
    if "secretKeyRef" not in source:
        raise BadContainerConfig(f"env valueFrom {', '.join(source)}: this node knows fieldRef and secretKeyRef")
    reference = source["secretKeyRef"]
    secret = await read_secret(namespace_of(pod), str(reference.get("name", "")))
    value = None if secret is None else secret.get(str(reference.get("key", "")))
    if value is None and not reference.get("optional"):
        raise BadContainerConfig(
            f"env: secret {reference.get('name')!r} with key {reference.get('key')!r} does not exist in namespace "
            f"{namespace_of(pod)!r}: create it, or mark the reference optional"
        )
    return None if value is None else value.decode(errors="replace")


def _field(pod: Object, path: str) -> str:
    known = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(pod["spec"].get("nodeName", "")),
    }
    if path not in known:
        raise BadContainerConfig(f"env fieldRef {path!r}: this node knows {', '.join(known)}")
    return known[path]
