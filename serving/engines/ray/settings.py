"""The settings and the state of the process of a Ray. Pure, but for the search of free ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from serving.engines.ray import key

LOOPBACK: Final = "127.0.0.1"
ANY: Final = "0.0.0.0"  # noqa: S104 - in a Pod of a group; requests need the key
TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of Ray's variable
STATE: Final = "/state"
INGRESS: Final = range(20_000, 30_000, 100)
"""First ports of the blocks for replicas: below the ports that the kernel hands out by itself."""
INGRESS_PORTS: Final = 99  # ports after the first one, for all replicas of ingress deployments
QUIET: Final[Mapping[str, str]] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{key.__name__}:middlewares",
    "RAY_enable_metrics_collection": "false",
    "RAY_enable_ray_event": "false",
    "RAY_event_stats": "false",
    "RAY_process_group_cleanup_enabled": "false",  # the guard ends all processes
    "RAY_task_events_report_interval_ms": "0",
    "RAY_raylet_start_wait_time_s": "300",  # Ray's limits of a start are short for a busy machine
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
    "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "120",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_ROTATION_MAX_BYTES": str(16 << 20),
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "MALLOC_ARENA_MAX": "2",  # of each process; the default is 8 for each core
    "PYTHONDONTWRITEBYTECODE": "1",  # a changed folder would have another digest
}
"""No usage reports, no metrics, no dashboards, no bytecode in the model's folder; a token for every connection."""


class Ports(msgspec.Struct, frozen=True):
    """TCP ports of one Ray. Ray chooses the others.

    Ray could choose those of its agents too, but then ends if they take more than 15 s to start.
    """

    http: int = 0
    fallback: int = 0
    haproxy_metrics: int = 0
    haproxy_stats: int = 0
    gcs: int = 0
    agent: int = 0
    agent_http: int = 0
    agent_metrics: int = 0
    environments: int = 0
    ingress: int = 0


GROUP_PORTS: Final = Ports(
    http=8600, fallback=8601, haproxy_metrics=8602, haproxy_stats=8603, gcs=6379, agent=8604, agent_http=8605,
    agent_metrics=8606, environments=8607, ingress=20_000,
)  # fmt: skip
"""The ports in each Pod of a group, which has no other servers than ours: workers must know that of the head node."""


class RaySettings(msgspec.Struct, frozen=True):
    """Settings of the process `serving.engines.ray.main`.

    folder          folder with the application; it is the working folder, and its modules can be imported
    config          whether the application is described by `serve.yaml` in it
    application     import path of the application without `serve.yaml`
    cpus            CPUs that Ray hands out to replicas
    object_store    bytes of the object store
    timeout         seconds after which Ray Serve gives up a request; 0: never
    ports           TCP ports
    socket          Unix socket on which the process serves its state
    temp            folder for Ray's files, with a short path
    address         address of this node, on which Ray's own servers listen
    nodes           nodes of the Ray: more than one is a group, each of whose Pods has a network of its own
    tolerates       whether the applications serve on while nodes are missing
    leader          address of the head node, for a worker; "" for the head node itself
    """

    folder: str
    config: bool
    application: str
    cpus: int
    object_store: int
    timeout: float
    ports: Ports = Ports()
    socket: str = ""
    temp: str = ""
    address: str = LOOPBACK
    nodes: int = 1
    tolerates: bool = False
    leader: str = ""

    @property
    def http_host(self) -> str:
        """The address on which HAProxy and the replicas take requests; HAProxy also reaches replicas of other nodes."""
        return ANY if self.nodes > 1 else self.address


class RayState(msgspec.Struct, frozen=True):
    """The state of a Ray. `slots` is the number of requests that the ingress deployments take at once.

    `reason` is why an application does not run, "" if all do.
    """

    slots: int
    reason: str = ""


def environment(settings: RaySettings, secret: str, token: str) -> dict[str, str]:
    """Return the variables of all processes of a Ray. `secret` is the key of requests, `token` that of Ray itself."""
    temp, ports = Path(settings.temp), settings.ports
    return {
        **QUIET,
        key.VARIABLE: secret,
        TOKEN: token,
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(temp / "h" / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(temp / "h" / "a"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(temp / "h"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(temp / "h" / "state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(temp / "h" / "m"),
        "RAY_SERVE_HAPROXY_LOG_TARGET": str(temp / "h" / "l"),  # nobody listens: the server logs requests
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.haproxy_metrics),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.haproxy_stats),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(ports.ingress),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(ports.ingress + INGRESS_PORTS),
    }


def find_ports() -> Ports:
    """Return ports that are free now. A replica whose port was taken meanwhile tries the next one of its block."""
    with ExitStack() as opened:
        named = {name: _bind(opened, 0) for name in Ports.__struct_fields__ if name != "ingress"}
        for first in random.sample(INGRESS, len(INGRESS)):  # nosec B311 - replicas that start together try other blocks
            try:
                _bind(opened, first)
            except OSError:
                continue
            return Ports(**named, ingress=first)
    raise OSError("no TCP port is free")


def _bind(opened: ExitStack, port: int) -> int:
    bound = opened.enter_context(socket.socket())
    bound.bind((LOOPBACK, port))
    found: int = bound.getsockname()[1]
    return found
