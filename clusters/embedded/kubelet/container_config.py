"""Derive from a Pod's spec the configuration of its container: ports, grace period, environment, command, limits."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from clusters.base.objects import Object, name_of, uid_of
from clusters.base.quantities import MEMORY_LIMIT
from clusters.embedded.kubelet.gpus.assignment import request_of
from clusters.embedded.kubelet.gpus.container_environment import gpu_environment
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
from clusters.embedded.kubelet.process.limits import limits_of, memory_limit
from clusters.embedded.kubelet.process.mounts import mount_volumes, replace_mount_paths
from clusters.embedded.kubelet.process.runtime import ContainerConfig
from clusters.gateway.token import VARIABLE
from clusters.net.endpoints import DEFAULT_PORT, MANAGEMENT_PORT, declared_port

DEFAULT_GRACE_PERIOD: Final = 30.0  # s; default of terminationGracePeriodSeconds in Kubernetes


def container_ports(container: Object) -> tuple[int, ...]:
    """Return the container ports that need a real port: the declared ones, by default 8080, and the management port."""
    declared = [int(port["containerPort"]) for port in container.get("ports") or ()] or [DEFAULT_PORT]
    return tuple(dict.fromkeys((*declared, MANAGEMENT_PORT)))


def grace_period(pod: Object) -> float:
    """Return the seconds between SIGTERM and SIGKILL: of the deletion, else of the spec."""
    of_deletion = pod["metadata"].get("deletionGracePeriodSeconds")
    seconds = pod["spec"].get("terminationGracePeriodSeconds") if of_deletion is None else of_deletion
    return DEFAULT_GRACE_PERIOD if seconds is None else float(seconds)


async def make_container_config(
    node: Node, pod: Object, container: Object, ports: Mapping[str, int], listeners: tuple[socket.socket, ...]
) -> ContainerConfig:
    """Return the configuration of a Pod's container on these real ports, on which `listeners` listen.

    `ports` maps container ports to real ones.
    A process with GPUs is executed, not forked: CUDA does not work in the fork of a process that has used it, and what
    the modules of a zygote do when they are imported is not under our control.
    Raises ImageNotFound, CreateContainerConfigError, RunContainerError, Unavailable, and OSError when a volume's files
    cannot be written.
    """
    uid = uid_of(pod)
    env = node_environment() | dict(image_of(container, node.images).env)
    mounted = await mount_volumes(pod, container, node.folders.volumes(uid), node.read_secret, node.read_config_map)
    env |= replace_mount_paths(mounted, await declared_environment(pod, container, node.read_secret))
    env |= {
        "PORT": str(ports[str(declared_port(pod))]),
        "MANAGEMENT_PORT": str(ports[str(MANAGEMENT_PORT)]),
        "HOST": HOST,
        "HOSTNAME": name_of(pod),
        "TMPDIR": str(node.folders.scratch(uid)),
        MEMORY_LIMIT: str(memory_limit(container)),
        TERMINATION_LOG: str(node.folders.termination_log(uid)),
        PROCESS_OF: str(node.folders.state_dir),
        PROCESS_HOME: node.folders.home,
        PROCESS_ROLE: "pod",
        POD_UID: uid,
        VARIABLE: node.tokens.of(uid),
    }
    env |= gpu_environment(node.devices, node.mps, uid, env)
    command = command_of(container, node.images, env)
    return ContainerConfig(
        command=replace(command, modules=()) if request_of(pod).count else command,
        env=env,
        cwd=node.folders.scratch(uid),
        log=node.folders.log(pod, str(container["name"])),
        limits=limits_of(container),
        ports=ports,
        record_file=node.folders.record_file(uid),
        listeners=listeners,
        home=node.folders.home,
    )
