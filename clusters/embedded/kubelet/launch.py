"""From a container's spec to all that its start needs: ports, environment, command, limits."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from clusters.base.objects import Object, name_of, uid_of
from clusters.embedded.kubelet.node import HOST, Node
from clusters.embedded.kubelet.process.environment import (
    POD_UID,
    PROCESS_HOME,
    PROCESS_OF,
    PROCESS_ROLE,
    TERMINATION_LOG,
    declared_environment,
    node_environment,
)
from clusters.embedded.kubelet.process.images import command_of, image_of
from clusters.embedded.kubelet.process.limits import limits_of
from clusters.embedded.kubelet.process.mounts import lead_to, mount_files
from clusters.embedded.kubelet.process.runtime import Launch
from clusters.gateway.token import VARIABLE
from clusters.net.endpoints import DEFAULT_PORT, MANAGEMENT_PORT, declared_port


def container_ports(container: Object) -> tuple[int, ...]:
    """The ports that need a real one: the declared ones (8080 when there are none) and the management port."""
    declared = [int(port["containerPort"]) for port in container.get("ports") or ()] or [DEFAULT_PORT]
    return tuple(dict.fromkeys((*declared, MANAGEMENT_PORT)))


async def make_launch(
    node: Node, pod: Object, container: Object, ports: Mapping[str, int], listeners: tuple[socket.socket, ...]
) -> Launch:
    """Return the start of a Pod's container on these real ports, on which `listeners` listen.

    Raises UnknownImage, BadContainerConfig, Unavailable, and OSError where files of a volume cannot be written.
    """
    uid = uid_of(pod)
    env = node_environment() | dict(image_of(container, node.images).env)
    places = await mount_files(pod, container, node.folders.volumes(uid), node.read_secret, node.read_config_map)
    env |= lead_to(places, await declared_environment(pod, container, node.read_secret))
    env |= _contract(node, pod, ports)
    return Launch(
        command=command_of(container, node.images, env),
        env=env,
        cwd=node.folders.scratch(uid),
        log=node.folders.log(pod, str(container["name"])),
        limits=limits_of(container),
        ports=ports,
        run_file=node.folders.run_file(uid),
        listeners=listeners,
        home=node.folders.home,
    )


def _contract(node: Node, pod: Object, ports: Mapping[str, int]) -> dict[str, str]:
    """What every process of this node is told, whatever its container declares."""
    uid = uid_of(pod)
    return {
        "PORT": str(ports[str(declared_port(pod))]),
        "MANAGEMENT_PORT": str(ports[str(MANAGEMENT_PORT)]),
        "HOST": HOST,
        "HOSTNAME": name_of(pod),
        "TMPDIR": str(node.folders.scratch(uid)),
        TERMINATION_LOG: str(node.folders.termination_log(uid)),
        PROCESS_OF: str(node.folders.state_dir),
        PROCESS_HOME: node.folders.home,
        PROCESS_ROLE: "pod",
        POD_UID: uid,
        VARIABLE: node.tokens.of(uid),
    }
