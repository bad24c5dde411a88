"""Nodes and Pods that are objects only: KWOK plays their kubelets, everything else is the real control plane.

Pods with a taint of a resource's name are kept off these nodes unless they request the resource: the admission plugin
ExtendedResourceToleration of the testbed adds the toleration.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from autoscaler.metrics.queue_proxy import MEDIA_TYPE, METRICS_PORT
from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import NODE, Object, condition_of, name_of
from tests.cluster.place import MANAGER
from tests.support.wait import eventually
from tests.testbed import commands
from tests.testbed.paths import standard
from tests.testbed.upstream import sources
from tests.testbed.versions import KWOK

ADDRESSES: Final = "198.19.64.1/18"
"""Of Pods, in `tests.testbed.addresses.TEST_RANGE`: nothing is sent out."""
LOCAL: Final = ("route", "{verb}", "local", "198.19.64.0/18", "dev", "lo")
"""The route by which this machine answers for all Pods."""
FAKE: Final = {"kwok.x-k8s.io/node": "fake"}
MODULE: Final = "sigs.k8s.io/kwok"
START: Final = (3000, 9000)
"""ms from a Pod's binding until it is ready, drawn evenly."""
TRAINER_END: Final = 5000
"""ms from the deletion of a Job's Pod until it has ended."""
SERVER_END: Final = 1000
QUEUE_PROXY_PORT: Final = 8012
_UPTIME: Final = 6 << 3 | 1
"""Tag of `process_uptime`, a double, in Knative's message `Stat`."""
START_NODES: Final = 60.0
"""s until KWOK has made all nodes Ready."""


_OPTIONS: Final = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {"podPlayStageParallelism": 32, "nodePlayStageParallelism": 4, "nodeLeaseParallelism": 4},
}
"""Kubelets of many nodes write side by side; 4 at once, the default, take longer for a hundred Pods than the Pods.

The other options have their defaults, which a file with options loses.
"""


def is_built() -> bool:
    """Return whether the testbed has the program (`python -m tests.testbed build --kwok`)."""
    return (standard().binaries / "kwok").exists()


@asynccontextmanager
async def fake_nodes(
    cluster: Cluster, kubeconfig: Path, folder: Path, resource: str, sizes: Sequence[int]
) -> AsyncIterator[None]:
    """Nodes of these sizes in units of the resource, until the end of the block. Their Pods answer as queue-proxy does.

    Without answers, Knative's activator probes hundreds of replicas five times a second each, on half a core.
    """
    config = folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all([_OPTIONS, _node_stage(), *_pod_stages()]))
    arguments = [
        f"--kubeconfig={kubeconfig}", f"--config={config}", f"--cidr={ADDRESSES}", "--node-lease-duration-seconds=40",
        "--manage-nodes-with-annotation-selector=" + ",".join(f"{key}={value}" for key, value in FAKE.items()),
    ]  # fmt: skip
    with (folder / "kwok.log").open("wb") as log, _queue_proxies():
        process = await asyncio.create_subprocess_exec(
            standard().binaries / "kwok", *arguments, stdout=log, stderr=log, env=dict(os.environ)
        )
        nodes = [_node(f"kwok-{number:03}", resource, size) for number, size in enumerate(sizes)]
        try:
            for node in nodes:
                await cluster.create(NODE, node, manager=MANAGER)
            await eventually(lambda: _all_are_ready(cluster, process, log.name), START_NODES)
            yield
        finally:
            for node in nodes:
                with suppress(NotFound):
                    await cluster.delete(NODE, name_of(node))
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


class _QueueProxy(BaseHTTPRequestHandler):
    """Answers probes, and reports that no request is there."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a probe of Knative's activator, or the autoscaler's question for the last period."""
        uptime = struct.pack("<Bd", _UPTIME, time.monotonic())
        body = uptime if self.path == "/metrics" else b"queue"
        self.send_response(200)
        self.send_header("Content-Type", MEDIA_TYPE if self.path == "/metrics" else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # the caller no longer waits
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def _queue_proxies() -> Iterator[None]:
    """This machine answers for the Pods until the end of the block."""
    with ExitStack() as stack:
        commands.run("ip", *(word.format(verb="replace") for word in LOCAL))
        stack.callback(commands.run, "ip", *(word.format(verb="delete") for word in LOCAL))
        for port in (QUEUE_PROXY_PORT, METRICS_PORT):
            server = stack.enter_context(ThreadingHTTPServer(("0.0.0.0", port), _QueueProxy))  # nosec B104 - a test's
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield


async def _all_are_ready(cluster: Cluster, process: asyncio.subprocess.Process, log: str) -> bool:
    if process.returncode is not None:
        pytest.fail(f"KWOK has ended:\n{Path(log).read_text()}")
    nodes = (await cluster.list(NODE)).items
    return all((condition_of(node, "Ready") or {}).get("status") == "True" for node in nodes)


def _node(name: str, resource: str, size: int) -> Object:
    amounts = {"cpu": "1000", "memory": "1Ti", "pods": "1000", resource: str(size)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(FAKE), "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": resource, "value": "present", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def _node_stage() -> Object:
    """Return upstream's stage that makes a node Ready."""
    folder = sources(KWOK, [MODULE])[MODULE]
    made: Object = yaml.safe_load((folder / "kustomize/stage/node/fast/node-initialize.yaml").read_text())
    return made


def _pod_stages() -> list[Object]:
    least, most = START
    deleted, living = _exists(".metadata.deletionTimestamp"), _exists(".metadata.deletionTimestamp", False)
    of_job = {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}
    ended = {"key": ".status.phase", "operator": "In", "values": ["Failed", "Succeeded"]}
    runs = {"key": ".status.phase", "operator": "NotIn", "values": ["Failed", "Succeeded"]}
    other = {**of_job, "operator": "NotIn"}
    gone = [deleted, of_job, ended, _exists(".metadata.finalizers", False)]
    return [
        _stage("pod-start", [living, _exists(".status.podIP", False)], least, most, {"statusTemplate": _RUNNING}),
        # The controller of Jobs releases a deleted Pod once it has ended, not before.
        _stage("trainer-end", [deleted, of_job, runs], TRAINER_END, TRAINER_END, {"statusTemplate": "phase: Failed\n"}),
        _stage("trainer-gone", gone, 0, 0, {"delete": True}),
        _stage("server-end", [deleted, other], SERVER_END, SERVER_END, {"delete": True}),
    ]


def _exists(path: str, there: bool = True) -> Object:
    return {"key": path, "operator": "Exists" if there else "DoesNotExist"}


def _stage(name: str, conditions: Sequence[Mapping[str, Any]], least: int, most: int, then: Object) -> Object:
    delay = {"durationMilliseconds": least, "jitterDurationMilliseconds": most} if most else {}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": list(conditions)},
            "delay": delay,
            "next": then,
        },
    }


_RUNNING: Final = """
{{ $now := Now }}
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ $type }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""
