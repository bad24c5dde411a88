"""What `knodel doctor --kube-context` judges: from what was seen of a cluster to findings. Pure, as `doctor` is.

What the caller may not see is no fault: it is told as not seen, and whoever may see it judges it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusters.base.objects import Object, condition_of, name_of
from serving.cli.doctor.findings import Finding, Reply
from serving.cli.installed import READER
from serving.makers.knative_flags import Flag
from serving.types.settings.settings import GatewaySettings

LEAST_MINOR = 33
"""Of Kubernetes 1.x: the least that Knative Serving 0.50 starts on (knative.dev/pkg `version`)."""


@dataclass(frozen=True, slots=True)
class Right:
    """What the command asks of the API server, and the verbs of `knodel` that need it."""

    verb: str
    resource: str
    group: str
    needed_by: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that the caller may not look at, or that is not there; `reason` says why."""

    reason: str
    forbidden: bool


def judge_kubernetes(version: Object) -> Finding:
    """`version`: what /version answers."""
    shown = str(version.get("gitVersion", "?"))
    minor = re.match(r"\d+", str(version.get("minor", "")))
    if minor is not None and version.get("major") == "1" and int(minor[0]) < LEAST_MINOR:
        return Finding("Kubernetes", False, f"version {shown}", f"upgrade it to 1.{LEAST_MINOR} or later")
    return Finding("Kubernetes", True, f"version {shown}")


def judge_rights(denied: Sequence[Right], asked: int, namespace: str) -> Finding:
    """`denied`: what the caller may not do, of `asked` questions."""
    if denied:
        words = ", ".join(f"{right} ({right.needed_by})" for right in denied)
        remedy = f"ask who runs the cluster for {_missing(denied, namespace)}"
        return Finding("rights", False, f"in namespace {namespace} you may not: {words}", remedy)
    return Finding("rights", True, f"all {asked} that the command needs in namespace {namespace}")


def _missing(denied: Sequence[Right], namespace: str) -> str:
    """The roles that give the rights: edit, and for the settings one that Knodel brings."""
    roles = dict.fromkeys(
        f"ClusterRole edit in namespace {namespace}" if right.namespace == namespace
        else f"Role {READER} in namespace {right.namespace}"
        for right in denied
    )  # fmt: skip
    return " and ".join(roles)


def judge_resources(check: str, resources: Sequence[str] | None, wanted: str, remedy: str) -> Finding:
    """`resources`: those of an API group by discovery, None when the cluster does not know the group."""
    if resources is None or wanted.partition(".")[0] not in resources:
        return Finding(check, False, f"the cluster does not know {wanted}", remedy)
    return Finding(check, True, f"{wanted} is known")


def judge_deployments(check: str, namespace: str, found: Sequence[Object] | Unseen, remedy: str) -> Finding:
    """Whether all Deployments of a namespace are Available; none is a fault."""
    if isinstance(found, Unseen):
        return _unseen(check, found, remedy)
    down = [_trouble(one) for one in found if (condition_of(one, "Available") or {}).get("status") != "True"]
    if down:
        why = f"`kubectl describe pods -n {namespace}` says why"
        return Finding(check, False, f"not available: {'; '.join(down)}", why)
    if not found:
        return Finding(check, False, f"no Deployment in namespace {namespace}", remedy)
    return Finding(check, True, f"{len(found)} Deployments available: {', '.join(sorted(map(name_of, found)))}")


def judge_version(deployments: Sequence[Object], ours: str) -> Finding:
    """Whether the installed controllers are of the command's version, by the tags of their images."""
    tags = {tag for one in deployments for tag in _tags(one)}
    others = sorted(tags - {ours})
    if others:
        message = f"this command is {ours}, the cluster runs {', '.join(others)}"
        return Finding("version", False, message, "use the command of the cluster's version, or install this one there")
    return Finding("version", True, f"{ours} here and there" if tags else f"{ours} here; images by digest say none")


def judge_flags(flags: Sequence[Flag], configs: Mapping[str, Mapping[str, str] | Unseen]) -> list[Finding]:
    """Each flag of Knative's that a Model can need. `configs`: ConfigMap → its data."""
    return [_flag(flag, configs.get(flag.configmap, {})) for flag in flags]


def judge_settings(found: GatewaySettings | Unseen, remedy: str = "") -> Finding:
    """Whether knodel-config is there and understood."""
    if isinstance(found, Unseen):
        return _unseen("settings", found, remedy)
    return Finding("settings", True, f"gateway {found.address}:{found.port}, domain {found.domain}")


def judge_ingress(gateway: GatewaySettings, reply: Reply) -> Finding:
    """Whether anything that speaks HTTP is where `knodel predict` would ask."""
    where = f"{gateway.address}:{gateway.port}"
    if reply.status:
        return Finding("ingress", True, f"{where} answers {reply.status}")
    remedy = "set gateway.address and gateway.port of knodel-config to the ingress as this machine reaches it"
    return Finding("ingress", False, f"{where} does not answer ({reply.error})", remedy)


def _flag(flag: Flag, data: Mapping[str, str] | Unseen) -> Finding:
    check = f"Knative's {flag.key}"
    if isinstance(data, Unseen):
        return _unseen(check, data, flag.remedy)
    if flag.is_on(data):
        return Finding(check, True, f"on: {flag.feature}")
    return Finding(check, False, f"off, and a Model that needs it is refused: {flag.feature}", flag.remedy)


def _unseen(check: str, unseen: Unseen, remedy: str) -> Finding:
    """What is forbidden to the caller is no fault; what is not there is one."""
    if unseen.forbidden:
        return Finding(check, True, unseen.reason, seen=False)
    return Finding(check, False, unseen.reason, remedy)


def _trouble(deployment: Object) -> str:
    condition = condition_of(deployment, "Available") or {}
    reason = condition.get("message") or condition.get("reason") or "its controller has not looked at it"
    return f"{name_of(deployment)} ({reason})"


def _tags(deployment: Object) -> list[str]:
    """The tags of the Deployment's images; those by digest say no version."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    names = [str(one.get("image", "")).rpartition("/")[2].partition("@")[0] for one in containers]
    return [name.partition(":")[2] for name in names if ":" in name]
