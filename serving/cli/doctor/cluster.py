"""Turn the facts that `examine_cluster` collects into findings of `knodel doctor --kube-context`. Pure.

A check that the caller has no permission for is skipped; it is not a problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusters.base.objects import Object, condition_of, name_of
from serving.cli.doctor.findings import Finding, ProbeResponse
from serving.cli.doctor.versions import UNKNOWN, component_versions, warnings
from serving.client.installed import READER
from serving.makers.knative_flags import Flag
from serving.types.settings.settings import GatewaySettings

MIN_MINOR_VERSION = 33
"""Lowest minor version of Kubernetes 1.x on which Knative Serving 0.50 starts (knative.dev/pkg `version`)."""


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that the command needs on the API server, and the verbs of `knodel` that need it."""

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
class Unreadable:
    """Objects that cannot be read, because of permissions or because they do not exist, with the reason."""

    reason: str
    forbidden: bool


def check_kubernetes(version: Object) -> Finding:
    """Check the version of Kubernetes. `version`: the response of /version."""
    shown = str(version.get("gitVersion", "?"))
    minor = re.match(r"\d+", str(version.get("minor", "")))
    if minor is not None and version.get("major") == "1" and int(minor[0]) < MIN_MINOR_VERSION:
        return Finding("Kubernetes", False, f"version {shown}", f"upgrade it to 1.{MIN_MINOR_VERSION} or later")
    return Finding("Kubernetes", True, f"version {shown}")


def check_rights(denied: Sequence[Permission], checked: int, namespace: str) -> Finding:
    """Check the permissions of the caller. `denied`: those that are missing, of `checked` ones."""
    if denied:
        words = ", ".join(f"{permission} ({permission.needed_by})" for permission in denied)
        roles = dict.fromkeys(
            f"ClusterRole edit in namespace {namespace}" if permission.namespace == namespace
            else f"Role {READER} in namespace {permission.namespace}"
            for permission in denied
        )  # fmt: skip
        remedy = f"ask the administrator of the cluster for {' and '.join(roles)}"
        return Finding("rights", False, f"permissions missing in namespace {namespace}: {words}", remedy)
    return Finding("rights", True, f"all {checked} permissions that the command needs in namespace {namespace}")


def check_resources(check: str, resources: Sequence[str] | None, wanted: str, remedy: str) -> Finding:
    """Check that the API group serves a resource. `resources`: those of the group, None if it does not exist."""
    if resources is None or wanted.partition(".")[0] not in resources:
        return Finding(check, False, f"the cluster does not serve {wanted}", remedy)
    return Finding(check, True, f"the cluster serves {wanted}")


def check_deployments(check: str, namespace: str, found: Sequence[Object] | Unreadable, remedy: str) -> Finding:
    """Check that the namespace has Deployments and that all are Available."""
    if isinstance(found, Unreadable):
        return _unreadable(check, found, remedy)
    down = []
    for one in found:
        available = condition_of(one, "Available") or {}
        if available.get("status") != "True":
            reason = available.get("message") or available.get("reason") or "no status yet"
            down.append(f"{name_of(one)} ({reason})")
    if down:
        why = f"`kubectl describe pods -n {namespace}` shows the reason"
        return Finding(check, False, f"not available: {'; '.join(down)}", why)
    if not found:
        return Finding(check, False, f"no Deployment in namespace {namespace}", remedy)
    return Finding(check, True, f"{len(found)} Deployments available: {', '.join(sorted(map(name_of, found)))}")


def check_version(deployments: Sequence[Object], ours: str) -> Finding:
    """Check that the command supports the installed controllers, and that they have one version (docs/releases.md).

    Images by digest have no version.
    """
    versions = component_versions(deployments)
    if found := warnings(ours, versions):
        return Finding(
            "version", False, "; ".join(found), "use the command of the cluster's version, or install this one there"
        )
    known = sorted(set(versions.values()) - {UNKNOWN})
    return Finding("version", True, f"{ours} here, {', '.join(known) or 'images with only digests'} there")


def check_flags(flags: Sequence[Flag], configs: Mapping[str, Mapping[str, str] | Unreadable]) -> list[Finding]:
    """Check the Knative flags that a Model can need. `configs`: ConfigMap → its data."""
    return [_flag(flag, configs.get(flag.configmap, {})) for flag in flags]


def check_settings(found: GatewaySettings | Unreadable, remedy: str = "") -> Finding:
    """Check that knodel-config exists and is valid."""
    if isinstance(found, Unreadable):
        return _unreadable("settings", found, remedy)
    return Finding("settings", True, f"gateway {found.address}:{found.port}, domain {found.domain}")


def check_ingress(gateway: GatewaySettings, result: ProbeResponse) -> Finding:
    """Check that an HTTP server responds at the address that `knodel predict` uses."""
    where = f"{gateway.address}:{gateway.port}"
    if result.status:
        return Finding("ingress", True, f"{where} responds with {result.status}")
    remedy = "set gateway.address and gateway.port in knodel-config to the address of the ingress for this machine"
    return Finding("ingress", False, f"{where} does not respond ({result.error})", remedy)


def _flag(flag: Flag, data: Mapping[str, str] | Unreadable) -> Finding:
    check = f"Knative's {flag.key}"
    if isinstance(data, Unreadable):
        return _unreadable(check, data, flag.remedy)
    if flag.is_on(data):
        return Finding(check, True, f"on: {flag.feature}")
    return Finding(check, False, f"off, so Models that need it are refused: {flag.feature}", flag.remedy)


def _unreadable(check: str, found: Unreadable, remedy: str) -> Finding:
    """Skip the check if the caller has no permission; report a problem if the objects do not exist."""
    if found.forbidden:
        return Finding(check, True, found.reason, seen=False)
    return Finding(check, False, found.reason, remedy)
