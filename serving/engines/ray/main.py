"""The process of a Ray with the applications of a Model.

python -P -m serving.engines.ray.main SETTINGS, behind the guard, which ends all processes of the Ray with this one. It
ends when Ray's own processes or its HAProxy have ended: then the engine starts a new Ray.
"""

from __future__ import annotations

import hmac
import logging
import os
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import msgspec

from clusters.base.redact import one_line
from serving.engines.base.group import listens
from serving.engines.ray import key
from serving.engines.ray.applications import (
    LONGEST_REASON,
    NotRunning,
    WrongConfig,
    check_statuses,
    deploy_config,
    missing_nodes,
    missing_resources,
    total_slots,
)
from serving.engines.ray.logs import LogFollower
from serving.engines.ray.settings import STATE, RaySettings, RayState

HEALTH: Final = "/health"
LOOK: Final = 0.5  # s between two checks of the processes of Ray
STATUS_PERIOD: Final = 5.0  # s between two readings of the status, which cost several milliseconds of CPU
START_PERIOD: Final = 0.2  # s, while the applications start
PROXY_START: Final = 300  # s for HAProxy to start
INHERITED: Final = ("RAY_ADDRESS", "RAY_REDIS_ADDRESS", "RAY_NAMESPACE", "RAY_JOB_CONFIG_JSON_ENV_VAR")
"""Variables of another Ray, in which this process may have been started."""


def main(encoded: str) -> int:
    """Run a Ray until one of its processes ends; return the exit code."""
    settings = msgspec.json.decode(encoded, type=RaySettings)
    for name in INHERITED:
        os.environ.pop(name, None)
    os.chdir(settings.folder)  # workers import from the working folder of their driver
    from ray.exceptions import RayError

    try:
        return _join(settings) if settings.leader else _run(settings)
    except (WrongConfig, NotRunning) as error:
        print(error)
    except RayError as error:
        print(f"Ray has failed: {one_line(str(error), LONGEST_REASON)}")
    return 1


def _run(settings: RaySettings) -> int:
    config = deploy_config(Path(settings.folder), settings.config, settings.application)
    import ray
    from ray.serve._private import api
    from ray.serve.schema import ServeDeploySchema

    try:
        schema = ServeDeploySchema.model_validate(config)
    except ValueError as error:
        raise WrongConfig(f"serve.yaml is not a configuration of Ray Serve: {error}") from error
    state_key = os.environ.pop(key.STATE_VARIABLE)  # of this process alone
    node = start_node(settings)
    logs = LogFollower(Path(node.get_logs_dir_path()), sys.stdout)
    logging.disable(logging.WARNING)  # Ray's own in this process; its other processes have files
    ray._private.worker._global_node = node  # else Ray looks for it at the address of the machine in its network
    ray.init(address=node.gcs_address, namespace="serve", log_to_driver=False, configure_logging=False)
    while reason := missing_nodes(ray.nodes(), settings.nodes):
        logs.follow()
        if ended := node.dead_processes():
            raise NotRunning(f"the process {ended[0][0]} of Ray has ended: {reason}")
        time.sleep(START_PERIOD)
    options = {"host": settings.http_host, "port": settings.ports.http, "request_timeout_s": settings.timeout or None}
    quiet = {"log_level": "WARNING", "enable_access_log": False}  # of the controller and the proxies
    api.HTTP_PROXY_TIMEOUT = PROXY_START  # 60 s by default
    client: Any = api.serve_start(http_options=options, proxy_location="HeadOnly", global_logging_config=quiet)
    client.deploy_apps(schema)
    server: StateServer | None = None
    last = 0.0
    lacking = ""
    while True:
        logs.follow()
        ended = [kind for kind, _ in node.dead_processes()]
        if ended or (server is not None and not _accepts(settings)):
            raise NotRunning(f"the process {ended[0] if ended else 'haproxy'} of Ray has ended")
        if settings.nodes > 1 and not settings.tolerates:
            former, lacking = lacking, missing_nodes(ray.nodes(), settings.nodes)
            last = last if lacking == former else 0.0
        if server is None or time.monotonic() - last >= STATUS_PERIOD:
            last = time.monotonic()
            details = client.get_serve_details()
            reason = lacking or check_statuses(details)
            if server is not None:
                server.state = RayState(total_slots(details), reason)
            elif missing := missing_resources(details, ray.cluster_resources()):
                raise NotRunning(missing)
            elif not reason:
                client.wait_for_proxies_serving(wait_for_applications_running=True)
                server = StateServer(settings.socket, state_key, RayState(total_slots(details)))
                threading.Thread(target=server.serve_forever, daemon=True).start()
        time.sleep(START_PERIOD if server is None else LOOK)


def _join(settings: RaySettings) -> int:
    """Run a worker node until one of its processes ends; return the exit code. Raises NotRunning."""
    while not listens(settings.leader, settings.ports.gcs):
        time.sleep(LOOK)
    node = start_node(settings)
    logs = LogFollower(Path(node.get_logs_dir_path()), sys.stdout)
    while not (ended := node.dead_processes()):
        logs.follow()
        time.sleep(LOOK)
    raise NotRunning(f"the process {ended[0][0]} of Ray has ended")


def start_node(settings: RaySettings) -> Any:
    """Start the processes of a node and return it. No dashboard, monitor, log monitor or client server."""
    ports = settings.ports
    from ray._private import utils
    from ray._private.node import Node
    from ray._private.parameter import RayParams
    from ray._raylet import DASHBOARD_AGENT_LISTEN_PORT_NAME, persist_port  # type: ignore[attr-defined]

    class OurNode(Node):  # type: ignore[misc]
        def start_api_server(self, **_: Any) -> None:
            """Start no dashboard: its process would start even when it is turned off."""

        def start_raylet(self, *given: Any, **named: Any) -> None:
            """Start the raylet. It would end if its agent took more than 15 s to write the port that we know."""
            utils.get_dashboard_dependency_error = lambda: ImportError("unused")  # the agent starts with few modules
            persist_port(self.get_session_dir_path(), self._node_id, DASHBOARD_AGENT_LISTEN_PORT_NAME, ports.agent_http)
            super().start_raylet(*given, **named)

    parameters = RayParams(
        node_ip_address=settings.address,
        gcs_server_port=ports.gcs,
        num_cpus=settings.cpus,
        object_store_memory=settings.object_store,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        temp_dir=settings.temp,
        dashboard_agent_listen_port=ports.agent_http,
        metrics_agent_port=ports.agent,
        metrics_export_port=ports.agent_metrics,
        runtime_env_agent_port=ports.environments,
    )
    if settings.leader:
        parameters.update(gcs_address=f"{settings.leader}:{ports.gcs}", gcs_server_port=None)
    return OurNode(parameters, head=not settings.leader, shutdown_at_exit=False, spawn_reaper=False)


class StateServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves `state` on a Unix socket to callers with the key."""

    daemon_threads = True

    def __init__(self, path: str, secret: str, state: RayState) -> None:
        super().__init__(path, _StateHandler)
        self.secret = secret
        self.state = state

    def handle_error(self, *_: Any) -> None:
        """Log nothing: the model server has given up a request."""


class _StateHandler(BaseHTTPRequestHandler):
    server: StateServer

    def do_GET(self) -> None:
        """Answer with the state."""
        given = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.secret}".encode()):
            self._send(401, b"")
        else:
            self._send(200 if self.path in (HEALTH, STATE) else 404, msgspec.json.encode(self.server.state))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the model server reads the state twice a second."""

    def address_string(self) -> str:
        """Return no address: a Unix socket has none."""
        return ""


def _accepts(settings: RaySettings) -> bool:
    """Return whether HAProxy accepts connections."""
    return listens(settings.address, settings.ports.http)


def run(argv: Sequence[str]) -> None:
    """Run `main`, and end without waiting for Ray's threads."""
    code = main(argv[0])
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    run(sys.argv[1:])
