"""`knodel gpus`."""

from __future__ import annotations

import click

from clusters.base.objects import POD, Object
from clusters.devices import nvml
from clusters.devices.machine import DevicesError
from serving.cli.context import Session, all_namespaces_option, verb
from serving.cli.gpus import machine
from serving.client.errors import ClientError, UsageError
from serving.client.models import gpus as cluster

NO_GPUS = "no node of the cluster has GPUs: `kubectl get pods -A` shows whether a device plugin runs"


@verb(
    "gpus",
    examples=[
        ("Show who holds the GPUs of a cluster, in all namespaces", "knodel gpus -A --kube-context NAME"),
        ("Count another extended resource, too", "knodel gpus --kube-context NAME --resource example.com/npu"),
    ],
)
@click.option("--resource", "resources", metavar="NAME", multiple=True, help="Further extended resource to count.")
@all_namespaces_option
def command(session: Session, resources: tuple[str, ...], all_namespaces: bool) -> None:
    """Show the GPUs, who holds them, and which nodes could be drained.

    On a cluster: the GPUs of each node by type, with the holders of the namespace. A node could be drained if the Pods
    on its GPUs fit on GPUs of the same type of other nodes; CPU, memory and affinity are not examined. On one machine:
    the NVIDIA GPUs, with the models that use them.
    """
    if session.kube is None:
        if resources:
            raise UsageError("--resource applies to a cluster: omit it, or give --kube-context NAME")
        _show_machine(session, None if all_namespaces else session.namespace)
        return
    view = cluster.read_view(session.client(), None if all_namespaces else session.namespace, resources)
    if session.output.structured:
        session.output.value(cluster.value(view))
        return
    if view.inventory.nodes:
        session.output.table(cluster.HEADS, cluster.rows(view), optional=("state", "resource"), wrapped="holders")
    else:
        session.output.text(NO_GPUS)
    for line in cluster.lines(view):
        session.output.text(line)


def _show_machine(session: Session, namespace: str | None) -> None:
    """Print the GPUs of this machine. Without a platform, the holders are processes."""
    try:
        gpus = nvml.read_gpus(nvml.load_nvml())
    except nvml.NoDriverError as error:
        gpus, absent = [], str(error)
    except DevicesError as error:
        raise ClientError(str(error)) from error
    else:
        absent = machine.NO_GPUS
    pods = _pods(session, namespace) if gpus else []
    if session.output.structured:
        session.output.value(machine.value(gpus, pods))
    elif gpus:
        session.output.table(machine.HEADS, machine.rows(gpus, pods), wrapped="holders")
    else:
        session.output.text(absent)


def _pods(session: Session, namespace: str | None) -> list[Object]:
    try:
        return list(session.client().list(POD, namespace)["items"])
    except ClientError:  # no platform runs
        return []
