"""Validate a revision's containers and their probes.

Source: knative/serving `pkg/apis/serving/fieldmask.go` and `k8s_validation.go`. Probes are validated as written:
defaults of Knative (a TCP readiness probe, thresholds) may be absent.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from tests.support.knative_webhook.checks import Faults

_FIELDS = (
    "name", "args", "command", "env", "workingDir", "envFrom", "image", "imagePullPolicy", "livenessProbe", "ports",
    "readinessProbe", "resources", "securityContext", "startupProbe", "terminationMessagePath",
    "terminationMessagePolicy", "volumeMounts",
)  # fmt: skip
_REFUSED = ("lifecycle", "stdin", "stdinOnce", "tty", "volumeDevices", "resizePolicy", "restartPolicy")

RESERVED_NAMES = ("queue-proxy",)
RESERVED_ENV = ("PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION")
RESERVED_PORTS = (8008, 8012, 8013, 8022, 9090, 9091)  # of queue-proxy and its profiler
PORT_NAMES = ("", "http1", "h2c")
LARGEST_PORT = 65535
_TEXTS = ("name", "workingDir", "terminationMessagePath")
_PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("", "File", "FallbackToLogsOnError")
_RESERVED_PATHS = ("/", "/dev", "/dev/log")

_ENV_FLAGS = {"fieldRef": "kubernetes.podspec-fieldref", "resourceFieldRef": "kubernetes.podspec-fieldref"}
_MOUNT_FLAGS = {"mountPropagation": "kubernetes.podspec-volumes-mount-propagation"}
_SECURITY_FIELDS = (
    "capabilities", "readOnlyRootFilesystem", "runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation",
    "seccompProfile", "privileged",
)  # fmt: skip
_SECURITY_REFUSED = ("seLinuxOptions", "windowsOptions", "procMount", "appArmorProfile")

LARGEST_INT32 = 2**31 - 1
HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")
_HANDLER_FIELDS = {
    "httpGet": ("host", "path", "scheme", "httpHeaders", "port"),
    "tcpSocket": ("host", "port"),
    "exec": ("command",),
    "grpc": ("port", "service"),
}
_NUMBERS = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
    "terminationGracePeriodSeconds",
)  # fmt: skip

_IMAGE = re.compile(
    r"((localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)(:\d+)?/|[A-Za-z0-9-]+:\d+/)?"  # registry
    r"[a-z0-9]+([._/-]+[a-z0-9]+)*(:[\w][\w.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"  # repository, tag, digest
)


def check_container(
    faults: Faults, path: str, container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]], *, serving: bool
) -> None:
    """Validate a container; `serving`: it is the one that gets the requests."""
    faults.known_fields(path, container, _FIELDS, refused=_REFUSED)
    for field in _TEXTS:
        faults.string(f"{path}.{field}", container.get(field))
    if container.get("name") in RESERVED_NAMES:
        faults.add(f"{path}.name", f'"{container["name"]}" is a reserved container name')
    for field in ("args", "command"):
        faults.strings(f"{path}.{field}", container.get(field))
    _check_choice(faults, f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    _check_choice(
        faults, f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGE_POLICIES
    )
    _check_image(faults, f"{path}.image", container.get("image"))
    _check_env(faults, f"{path}.env", container.get("env"), serving=serving)
    for where, item in faults.items(f"{path}.envFrom", container.get("envFrom")):
        source = faults.map(where, item)
        faults.known_fields(where, source, ("prefix", "configMapRef", "secretRef"))
        faults.one_of(where, source, ("configMapRef", "secretRef"))
    port_name = _check_ports(faults, f"{path}.ports", container.get("ports"))
    resources = faults.map(f"{path}.resources", container.get("resources"))
    faults.known_fields(f"{path}.resources", resources, ("limits", "requests"), refused=("claims",))
    for field in ("limits", "requests"):
        faults.quantities(f"{path}.resources.{field}", resources.get(field))
    _check_security(faults, f"{path}.securityContext", container.get("securityContext"))
    _check_mounts(faults, f"{path}.volumeMounts", container.get("volumeMounts"), volumes)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            _check_probe(
                faults, f"{path}.{field}", container[field],
                port_name=port_name, readiness=field == "readinessProbe", serving=serving,
            )  # fmt: skip


def _check_image(faults: Faults, path: str, value: object) -> None:
    image = faults.string(path, value)
    if not image:
        faults.add(path, "missing field: an image is required")
    elif not _IMAGE.fullmatch(image):
        faults.add(path, f"Failed to parse image reference: {image[:80]!r}")


def _check_env(faults: Faults, path: str, value: object, *, serving: bool) -> None:
    reserved = RESERVED_ENV if serving else tuple(name for name in RESERVED_ENV if name != "PORT")
    for where, item in faults.items(path, value):
        variable = faults.map(where, item)
        faults.known_fields(where, variable, ("name", "value", "valueFrom"))
        name = faults.string(f"{where}.name", variable.get("name"))
        faults.string(f"{where}.value", variable.get("value"))
        if not name:
            faults.add(f"{where}.name", "missing field: a name is required")
        elif name in reserved:
            faults.add(f"{where}.name", f'"{name}" is a reserved environment variable')
        source = faults.map(f"{where}.valueFrom", variable.get("valueFrom"))
        faults.known_fields(f"{where}.valueFrom", source, ("configMapKeyRef", "secretKeyRef"), flagged=_ENV_FLAGS)


def _check_ports(faults: Faults, path: str, value: object) -> str:
    """Return the name of the port for probes."""
    name = ""
    for where, item in faults.items(path, value):
        port = faults.map(where, item)
        faults.known_fields(where, port, ("containerPort", "name", "protocol"), refused=("hostIP", "hostPort"))
        number = faults.integer(f"{where}.containerPort", port.get("containerPort"), 0, LARGEST_PORT)
        if number in RESERVED_PORTS:
            faults.add(f"{where}.containerPort", f"{number} is a reserved port, please use a different value")
        name = faults.string(f"{where}.name", port.get("name"))
        if name not in PORT_NAMES:
            faults.add(f"{where}.name", f"Port name {name} is not allowed: must be empty, or one of: 'h2c', 'http1'")
        if port.get("protocol") not in (None, "", "TCP"):
            faults.add(f"{where}.protocol", f"invalid value: {port['protocol']!r}: only TCP is allowed")
    return name or "http"


def _check_security(faults: Faults, path: str, value: object) -> None:
    context = faults.map(path, value)
    faults.known_fields(path, context, _SECURITY_FIELDS, refused=_SECURITY_REFUSED)
    if context.get("privileged") not in (None, False):
        faults.add(f"{path}.privileged", "must not be set to true: only false is allowed")
    for field in ("runAsUser", "runAsGroup"):
        faults.integer(f"{path}.{field}", context.get(field), 0, LARGEST_INT32)
    capabilities = faults.map(f"{path}.capabilities", context.get("capabilities"))
    flags = {"add": "kubernetes.containerspec-addcapabilities"}
    faults.known_fields(f"{path}.capabilities", capabilities, ("drop",), flagged=flags)


def _check_mounts(faults: Faults, path: str, value: object, volumes: Mapping[str, Mapping[str, Any]]) -> None:
    paths: set[str] = set()
    for where, item in faults.items(path, value):
        mount = faults.map(where, item)
        faults.known_fields(
            where, mount, ("name", "readOnly", "mountPath", "subPath"),
            flagged=_MOUNT_FLAGS, refused=("recursiveReadOnly", "subPathExpr"),
        )  # fmt: skip
        if faults.string(f"{where}.name", mount.get("name")) not in volumes:
            faults.add(f"{where}.name", "volumeMount has no matching volume")
        faults.boolean(f"{where}.readOnly", mount.get("readOnly"))  # Knative sets it where it is required
        _check_mount_path(
            faults, f"{where}.mountPath", faults.string(f"{where}.mountPath", mount.get("mountPath")), paths
        )


def _check_mount_path(faults: Faults, path: str, mount_path: str, seen: set[str]) -> None:
    clean = posixpath.normpath(mount_path) if mount_path else ""
    if not mount_path:
        faults.add(path, "missing field: a path is required")
    elif clean in _RESERVED_PATHS:
        faults.add(path, f'mountPath "{clean}" is a reserved path')
    elif not posixpath.isabs(mount_path):
        faults.add(path, f"invalid value: {mount_path!r}: an absolute path is expected")
    elif clean in seen:
        faults.add(path, f'"{mount_path}" must be unique')
    seen.add(clean)


def _check_choice(faults: Faults, path: str, value: object, choices: tuple[str, ...]) -> None:
    text = faults.string(path, value)
    if text not in choices:
        faults.add(path, f"invalid value: {text!r}: use one of {', '.join(choice for choice in choices if choice)}")


def _check_probe(faults: Faults, path: str, value: object, *, port_name: str, readiness: bool, serving: bool) -> None:
    """Validate a probe. `port_name`: name of the container's port. `serving`: the container gets the requests."""
    probe = faults.map(path, value)
    faults.known_fields(path, probe, (*HANDLERS, *_NUMBERS))
    for field in _NUMBERS:
        faults.integer(f"{path}.{field}", probe.get(field), 0, LARGEST_INT32)
    faults.one_of(path, probe, HANDLERS, required=not (readiness and serving))
    for handler in HANDLERS:
        if probe.get(handler) is not None:
            _check_handler(faults, f"{path}.{handler}", handler, probe[handler], port_name, serving=serving)
    if readiness:
        _check_aggressive(faults, path, probe)


def _check_handler(faults: Faults, path: str, handler: str, value: object, port_name: str, *, serving: bool) -> None:
    fields = faults.map(path, value)
    faults.known_fields(path, fields, _HANDLER_FIELDS[handler])
    port = fields.get("port")
    if handler not in ("httpGet", "tcpSocket"):
        return
    if port is not None and (isinstance(port, bool) or not isinstance(port, int | str)):
        faults.add(f"{path}.port", f"{port!r} is not allowed: a number or the port's name is expected")
    elif serving and isinstance(port, str) and port not in ("", port_name):
        faults.add(f"{path}.port", f"invalid value: {port!r}: Probe port must match container port")
    elif not serving and not port:
        faults.add(f"{path}.port", "missing field: Probe port must be specified")


def _check_aggressive(faults: Faults, path: str, probe: Mapping[str, Any]) -> None:
    """Reject thresholds without a period: Knative then probes as often as possible, with its own thresholds."""
    if probe.get("periodSeconds"):
        return
    for field in ("failureThreshold", "timeoutSeconds"):
        if probe.get(field):
            faults.add(f"{path}.{field}", f"{field} is disallowed when periodSeconds is zero")
