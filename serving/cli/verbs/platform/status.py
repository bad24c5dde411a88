"""`knodel status`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from clusters.base.errors import Forbidden
from clusters.base.objects import EVENT, MODEL, WARM_POOL, Kind, Object
from clusters.base.sizes import human_bytes
from serving.cli.addresses import aligned
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.summary import Summary, summarize
from serving.client.client import Client
from serving.client.errors import FAILED
from serving.client.state import running_platform
from serving.control_api.table import age_of

EMPTY: Object = {"items": []}


@verb(
    "status",
    examples=[
        ("Show the platform and what needs attention", "knodel status"),
        ("Show one namespace of a cluster", "knodel status --kube-context NAME -n team"),
    ],
)
def command(session: Session) -> int:
    """Show the platform or cluster on one page: models that are not ready, rollouts, warm pools, warnings, disk use.

    It covers all namespaces, or the one of -n. The exit code is 0 if no model has failed, else 1.
    """
    client, now = session.client(), datetime.now(UTC)
    models = _list(session, client, MODEL)
    pools, events = EMPTY, EMPTY
    with suppress(Forbidden):  # callers who may read Models may lack the permission for others
        pools = _list(session, client, WARM_POOL)
    with suppress(Forbidden):
        events = _list(session, client, EVENT, "type=Warning")
    summary = summarize(models["items"], pools["items"], events["items"], now)
    about = ({"environment": session.env} if session.env else {}) | _about(session, client)
    if session.output.structured:
        session.output.value({**about, "healthy": summary.healthy, **_value(summary)})
    else:
        _print(session.output, about, summary, now)
    return 0 if summary.healthy else FAILED


def _list(session: Session, client: Client, kind: Kind, fields: str = "") -> Object:
    """Return the objects of all namespaces, or of one: the given one, or that of a context with rights only there."""
    if session.namespace_given:
        return client.list(kind, session.namespace, fields=fields)
    try:
        return client.list(kind, None, fields=fields)
    except Forbidden:
        return client.list(kind, session.namespace, fields=fields)


def _about(session: Session, client: Client) -> dict[str, Any]:
    """Return the facts about the platform, or about the cluster."""
    if session.kube is not None:
        return {"cluster": {"context": session.kube.name, "kubernetes": str(client.read("/version").get("gitVersion"))}}
    facts = running_platform(session.state)
    disk = shutil.disk_usage(session.state)
    store = {"stateFolder": str(session.state), "freeBytes": disk.free, "totalBytes": disk.total}
    platform: Mapping[str, Any] = {} if facts is None else {
        "version": facts.version,
        "process": facts.pid,
        "gateway": f"http://{facts.gateway}",
        "control": f"https://{facts.control_tls}",
        "events": f"http://{facts.control}/events",
    }  # fmt: skip
    return {"platform": platform, "disk": store | _kept(session)}


def _kept(session: Session) -> dict[str, int]:
    """Return the bytes of the copies of local model files and of the store."""
    from serving.storage.kept import used_bytes  # its imports take 20 ms
    from serving.types.settings.state import KEPT_FOLDER, STORE_FILE

    store = session.state / STORE_FILE
    return {
        "modelFileBytes": used_bytes(session.state / KEPT_FOLDER),
        "storeBytes": store.stat().st_size if store.exists() else 0,
    }


def _value(summary: Summary) -> dict[str, Any]:
    return {
        "models": {"ready": summary.ready, "idle": summary.idle, "waiting": [asdict(one) for one in summary.waiting]},
        "rollouts": list(summary.rollouts),
        "warmPools": list(summary.pools),
        "warnings": [asdict(one) for one in summary.warnings],
    }


def _print(output: Output, about: Mapping[str, Any], summary: Summary, now: datetime) -> None:
    facts = [("Environment", about["environment"])] if about.get("environment") else []
    if cluster := about.get("cluster"):
        facts += [("Cluster", f"{cluster['context']}, Kubernetes {cluster['kubernetes']}")]
    if platform := about.get("platform"):
        facts += [("Platform", f"version {platform['version']}, process {platform['process']}")]
        facts += [("Gateway", platform["gateway"]), ("Events", platform["events"])]
    if disk := about.get("disk"):
        used = f"model files {human_bytes(disk['modelFileBytes'])}, objects {human_bytes(disk['storeBytes'])}"
        facts += [("Disk", f"{used}, {human_bytes(disk['freeBytes'])} free at {disk['stateFolder']}")]
    facts += [("Models", _models(summary))]
    for line in aligned(facts):
        output.text(line)
    waiting = [[one.namespace, one.name, one.state, one.reason, one.message] for one in summary.waiting]
    _section(output, "Not ready", ["namespace", "name", "state", "reason", "message"], waiting)
    rollouts = [[one["namespace"], one["model"], one["candidate"], one["summary"]] for one in summary.rollouts]
    _section(output, "Rollouts", ["namespace", "model", "candidate", "state"], rollouts)
    pools = [[one[key] for key in ("namespace", "name", "format", "size", "ready", "claimed")] for one in summary.pools]
    _section(output, "Warm pools", ["namespace", "name", "format", "size", "ready", "claimed"], pools)
    warnings = [
        [age_of({"metadata": {"creationTimestamp": one.at}}, now), one.object, one.reason, one.times, one.message]
        for one in summary.warnings
    ]
    _section(output, "Warnings of the last hour", ["age", "object", "reason", "times", "message"], warnings)


def _models(summary: Summary) -> str:
    counts = {
        "ready": summary.ready,
        "starting": sum(1 for one in summary.waiting if one.state == "starting"),
        "failed": sum(1 for one in summary.waiting if one.state == "failed"),
    }
    words = [f"{count} {state}" for state, count in counts.items() if count]
    idle = f" ({summary.idle} of them without a replica)" if summary.idle else ""
    return (", ".join(words) or "none yet") + idle


def _section(output: Output, title: str, heads: list[str], rows: list[list[Any]]) -> None:
    if rows:
        output.text("")
        output.text(f"{title}:")
        output.table([f"  {heads[0]}", *heads[1:]], [[f"  {row[0]}", *row[1:]] for row in rows], wrapped=heads[-1])
