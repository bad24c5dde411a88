"""The environment variables of a container's process.

Later sources override earlier ones: a few variables of the node, those of the image, those that the container declares,
and those that every Pod of the node gets.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from clusters.base.objects import Object, name_of, namespace_of, uid_of
from clusters.embedded.kubelet.process.errors import CreateContainerConfigError
from clusters.embedded.kubelet.process.images import expand

# Every process of a node carries these variables, so that it can be found when its record is lost.
PROCESS_OF: Final = "KNODEL_PROCESS_OF"  # path of the state folder of the platform that started the process
PROCESS_HOME: Final = "KNODEL_PROCESS_HOME"  # device and inode of that folder; a copy of the folder has others
PROCESS_ROLE: Final = "KNODEL_PROCESS_ROLE"  # "pod", "zygote", …
POD_UID: Final = "KNODEL_POD_UID"  # for role "pod"
TERMINATION_LOG: Final = "KNODEL_TERMINATION_LOG"  # file for the process's termination message

_FROM_NODE: Final = frozenset({"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH",
                               "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
                               "http_proxy", "https_proxy", "no_proxy"})  # fmt: skip
"""Variables of the node that processes need. Others may hold credentials of the user's shell and are not passed on."""

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""Map (namespace, name) to decoded values, or to None when there is no such Secret."""


def node_environment(node: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of `node` (by default of this process) that every process gets."""
    return {name: value for name, value in (os.environ if node is None else node).items() if name in _FROM_NODE}


async def declared_environment(pod: Object, container: Object, read_secret: ReadSecret) -> dict[str, str]:
    """Return the variables of `container.env`, in order, with `$(NAME)` and `valueFrom` resolved.

    Raises CreateContainerConfigError.
    """
    env: dict[str, str] = {}
    for entry in container.get("env") or ():
        name = str(entry["name"])
        source = entry.get("valueFrom")
        if source:
            value = await _resolve_source(pod, source, read_secret)
        else:
            value = expand(str(entry.get("value") or ""), env)
        if value is None:
            continue
        if "\0" in value or "=" in name or not name:
            raise CreateContainerConfigError(
                f"invalid env {name!r}: a name must not be empty or contain '=', a value must not contain a NUL byte"
            )
        env[name] = value
    return env


async def _resolve_source(pod: Object, source: Mapping[str, Any], read_secret: ReadSecret) -> str | None:
    """Return the value of a `valueFrom`, None for an optional Secret that does not exist."""
    if "fieldRef" in source:
        return _resolve_field(pod, str(source["fieldRef"].get("fieldPath", "")))
    if "secretKeyRef" not in source:
        raise CreateContainerConfigError(
            f"unsupported env valueFrom {', '.join(source)}: this node supports fieldRef and secretKeyRef"
        )
    reference = source["secretKeyRef"]
    secret = await read_secret(namespace_of(pod), str(reference.get("name", "")))
    value = None if secret is None else secret.get(str(reference.get("key", "")))
    if value is None and not reference.get("optional"):
        raise CreateContainerConfigError(
            f"env: secret {reference.get('name')!r} with key {reference.get('key')!r} does not exist in namespace "
            f"{namespace_of(pod)!r}: create it, or mark the reference optional"
        )
    return None if value is None else value.decode(errors="replace")


def _resolve_field(pod: Object, path: str) -> str:
    values = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(pod["spec"].get("nodeName", "")),
    }
    if path not in values:
        raise CreateContainerConfigError(f"unsupported env fieldRef {path!r}: this node supports {', '.join(values)}")
    return values[path]
