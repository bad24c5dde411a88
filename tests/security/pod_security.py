"""Pod Security's profile `restricted`, and what we ask beyond it, as a pure function from a PodSpec to its faults.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ (baseline and restricted). Beyond it: a
root file system that cannot be written, no variables of other Services, and limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from clusters.base.objects import Object

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
PROFILES = frozenset({"RuntimeDefault", "Localhost"})
BASELINE_ONLY = ("procMount", "seLinuxOptions", "windowsOptions", "appArmorProfile")
LIMITED = ("cpu", "memory")


def faults(spec: Object) -> list[str]:
    """Each fault as `WHERE: WHAT`; none for a Pod that is restricted."""
    return [*_of_pod(spec), *(fault for sort in CONTAINERS for one in spec.get(sort) or () for fault in _of(one, spec))]


def _of_pod(spec: Object) -> Iterator[str]:
    for field in HOST_NAMESPACES:
        if spec.get(field):
            yield f"spec: {field}"
    for volume in spec.get("volumes") or ():
        sort = next((key for key in volume if key != "name"), "emptyDir")
        if sort not in VOLUMES:
            yield f"volume {volume['name']}: {sort}"
    context = spec.get("securityContext") or {}
    if context.get("sysctls"):
        yield "spec: sysctls"
    if context.get("runAsUser") == 0:
        yield "spec: runs as root"
    if spec.get("enableServiceLinks") is not False:
        yield "spec: has variables of all Services"


def _of(container: Object, spec: Object) -> Iterator[str]:
    where = f"container {container['name']}"
    own = container.get("securityContext") or {}
    context = {**(spec.get("securityContext") or {}), **own}
    if own.get("privileged") or any(own.get(field) for field in BASELINE_ONLY):
        yield f"{where}: more than the baseline"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{where}: may gain privileges"
    capabilities = own.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield f"{where}: has capabilities"
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        yield f"{where}: may run as root"
    if (context.get("seccompProfile") or {}).get("type") not in PROFILES:
        yield f"{where}: has all system calls"
    if own.get("readOnlyRootFilesystem") is not True:
        yield f"{where}: may write to its root"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield f"{where}: has a port of the host"
    limits = (container.get("resources") or {}).get("limits") or {}
    if any(one not in limits for one in LIMITED):
        yield f"{where}: has no limits"
