"""`knodel version`."""

from __future__ import annotations

import platform
from typing import Any

import click

from clusters.base.distribution import VERSION
from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import DEPLOYMENT
from serving.cli.addresses import aligned
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.doctor.cluster import check_kubernetes
from serving.cli.doctor.versions import UNKNOWN, component_versions, knative_version, warnings
from serving.client.client import Client
from serving.client.installed import SYSTEM_NAMESPACE
from serving.client.state import running_platform, version_skew
from serving.makers.knative_flags import NAMESPACE as KNATIVE_NAMESPACE

Facts = dict[str, Any]


@verb(
    "version",
    namespaced=False,
    examples=[
        ("Show the versions of the command and of the platform", "knodel version"),
        ("Show the versions of a cluster as JSON", "knodel version --kube-context NAME -o json"),
    ],
)
@click.option("--client", "client_only", is_flag=True, help="Show the version of the command only.")
def command(session: Session, client_only: bool) -> int:
    """Show the versions of the command, and of the platform or the cluster with Knative and Kubernetes.

    Warns if they are too far apart. Without a cluster and a running platform, it shows the version of the command.
    """
    facts: Facts = {"client": {"version": VERSION, "python": platform.python_version()}}
    failure: KnodelError | None = None
    if not client_only:
        try:
            facts |= _there(session)
        except KnodelError as error:  # the version of the command is known anyway
            failure = error
    if session.output.structured:
        session.output.value(facts)
    else:
        _print(session.output, facts)
        for warning in facts.get("warnings", ()):
            session.output.warn(warning)
    if failure is not None:
        raise failure
    return 0


def _there(session: Session) -> Facts:
    """Return the facts about the cluster, or about the platform of this machine."""
    if session.kube is not None:
        return _cluster(session.client(), session.kube.name)
    running = running_platform(session.state)
    if running is None:
        return {"platform": None, "warnings": []}
    skew = version_skew(session.state)
    return {"platform": {"version": running.version, "process": running.pid}, "warnings": [skew] if skew else []}


def _cluster(client: Client, context: str) -> Facts:
    """Read the versions of a cluster. Callers without rights on the system namespaces get less."""
    kubernetes = client.read("/version")
    components = component_versions(_deployments(client, SYSTEM_NAMESPACE))
    found = warnings(VERSION, components)
    checked = check_kubernetes(kubernetes)
    if not checked.ok:
        found.append(f"Kubernetes has {checked.message}: {checked.remedy}")
    cluster = {
        "context": context,
        "knodel": ", ".join(sorted(set(components.values()))) or UNKNOWN,
        "components": components,
        "knative": knative_version(_deployments(client, KNATIVE_NAMESPACE)),
        "kubernetes": str(kubernetes.get("gitVersion", UNKNOWN)),
    }
    return {"cluster": cluster, "warnings": found}


def _deployments(client: Client, namespace: str) -> list[Any]:
    try:
        return list(client.list(DEPLOYMENT, namespace)["items"])
    except Forbidden:
        return []


def _print(output: Output, facts: Facts) -> None:
    lines = [("Client", f"{facts['client']['version']} (Python {facts['client']['python']})")]
    if "platform" in facts:
        running = facts["platform"]
        lines.append(("Platform", f"{running['version']}, process {running['process']}" if running else "does not run"))
    if cluster := facts.get("cluster"):
        lines += [("Cluster", cluster["context"]), ("Knodel", cluster["knodel"])]
        lines += [("Knative", cluster["knative"]), ("Kubernetes", cluster["kubernetes"])]
    for line in aligned(lines):
        output.text(line)
