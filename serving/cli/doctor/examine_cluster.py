"""Collect the facts of `knodel doctor --kube-context`: API server, Knative, Knodel, ingress. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusters.base.distribution import VERSION
from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import DEPLOYMENT, MODEL, REVISION, Kind, Object, name_of
from serving.cli.context import Session
from serving.cli.doctor import cluster as doctor
from serving.cli.doctor.cluster import Permission, Unreadable
from serving.cli.doctor.examine_gpus import read_config_maps
from serving.cli.doctor.examine_models import examine_there
from serving.cli.doctor.findings import Finding, ProbeResponse
from serving.client.client import Client
from serving.client.errors import ClientError
from serving.client.http import ServerAddress, exchange
from serving.client.installed import CONFIG_NAME, SYSTEM_NAMESPACE, installed_settings
from serving.makers.knative_flags import FLAGS
from serving.makers.knative_flags import NAMESPACE as KNATIVE_NAMESPACE
from serving.types.settings.settings import GatewaySettings

PROBE_TIMEOUT = 5.0  # s for one response; a remote cluster takes a tenth of it
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
"""A request that the API server evaluates but does not store."""
EMBEDDED = "+knodel."
"""Part of the `gitVersion` of a platform of `knodel up`."""
OMIT_CONTEXT = "omit --kube-context to check the platform of this machine"
CORE = ("controller", "webhook", "activator", "autoscaler")
"""The Deployments of Knative Serving that every revision needs to start."""


def examine_cluster(session: Session, context: str, namespace: str | None) -> Iterator[Finding]:
    """Run all checks, in the order of their dependencies; stop after the first if the API server does not respond.

    Models are those of `namespace`, None for all.
    """
    try:
        client = session.client(PROBE_TIMEOUT)
        version = client.read("/version")
        if EMBEDDED in str(version.get("gitVersion")):
            yield Finding("API server", False, f"context {context} is a platform of `knodel up`", OMIT_CONTEXT)
            return
        permissions = _permissions(session.namespace)
        denied = [permission for permission in permissions if not _is_granted(client, permission)]
    except KnodelError as error:
        yield Finding("API server", False, *_halves(error))
        return
    install = f"`knodel install --kube-context {context}`"
    yield Finding("API server", True, f"context {context} responds and accepts the credentials")
    yield doctor.check_kubernetes(version)
    yield doctor.check_rights(denied, len(permissions), session.namespace)
    yield from _knative(client)
    model = doctor.check_resources("Model", _resources(client, MODEL), MODEL.resource, install)
    yield model
    deployments = _deployments(client, SYSTEM_NAMESPACE)
    yield doctor.check_deployments("Knodel", SYSTEM_NAMESPACE, deployments, install)
    if deployments and not isinstance(deployments, Unreadable):
        yield doctor.check_version(deployments, VERSION)
    yield from _settings_and_ingress(client, context)
    if model.ok:
        yield from examine_there(client, namespace, context)


def _permissions(namespace: str) -> list[Permission]:
    def here(verb: str, resource: str, needed_by: str, group: str = "") -> Permission:
        return Permission(verb, resource, group, needed_by, namespace)

    own = [
        *((verb, "list, get, wait") for verb in ("get", "list", "watch")),
        *((verb, "deploy, traffic, promote, rollback") for verb in ("create", "patch")),
        ("delete", "delete"),
    ]
    return [
        *(here(verb, MODEL.plural, needed_by, MODEL.group) for verb, needed_by in own),
        here("list", REVISION.plural, "describe, traffic, promote, rollback", REVISION.group),
        here("list", "pods", "logs, delete"),
        here("get", "pods/log", "logs"),
        here("list", "events", "describe"),
        Permission("get", "configmaps", "", "predict, config, render", SYSTEM_NAMESPACE, CONFIG_NAME),
    ]


def _is_granted(client: Client, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb, "group": permission.group, "resource": resource, "subresource": subresource,
        "namespace": permission.namespace, "name": permission.name,
    }  # fmt: skip
    review = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    status = client.review(ACCESS_REVIEW, review).get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def _knative(client: Client) -> Iterator[Finding]:
    remedy = "install Knative Serving 0.50 with an ingress such as Kourier"
    yield doctor.check_resources("Knative Serving", _resources(client, REVISION), REVISION.resource, remedy)
    found = _deployments(client, KNATIVE_NAMESPACE)
    if not isinstance(found, Unreadable):
        missing = [name for name in CORE if name not in map(name_of, found)]
        found = found if not missing else Unreadable(f"no Deployment {', '.join(missing)}", forbidden=False)
    yield doctor.check_deployments("Knative's Deployments", KNATIVE_NAMESPACE, found, remedy)
    yield from doctor.check_flags(FLAGS, read_config_maps(client, FLAGS))


def _resources(client: Client, kind: Kind) -> Sequence[str] | None:
    """Return the resources of the kind's group and version, by discovery; every authenticated user may do that."""
    try:
        found = client.read(f"/apis/{kind.api_version}").get("resources")
    except KnodelError:  # the group does not exist; an earlier check has shown that the server responds
        return None
    return [str(one.get("name")) for one in found if isinstance(one, dict)] if isinstance(found, list) else None


def _deployments(client: Client, namespace: str) -> Sequence[Object] | Unreadable:
    try:
        found: list[Object] = client.list(DEPLOYMENT, namespace)["items"]
    except KnodelError as error:
        return _unreadable(error)
    return found


def _halves(error: KnodelError) -> tuple[str, str]:
    """Split a message into problem and remedy; every message of the command has both, in this order."""
    what, _, remedy = str(error).rpartition(": ")
    return (what, remedy) if what else (remedy, "see the kubeconfig")


def _unreadable(error: KnodelError) -> Unreadable:
    return Unreadable(str(error), isinstance(error, Forbidden))


def _settings_and_ingress(client: Client, context: str) -> Iterator[Finding]:
    try:
        gateway: GatewaySettings = client.call(installed_settings, context).gateway
    except KnodelError as error:
        what, remedy = _halves(error)
        yield doctor.check_settings(Unreadable(what, isinstance(error, Forbidden)), remedy)
        return
    yield doctor.check_settings(gateway)
    yield doctor.check_ingress(gateway, _probe_ingress(gateway))


def _probe_ingress(gateway: GatewaySettings) -> ProbeResponse:
    """Send a request for a host that no model has; any response is good."""
    endpoint = ServerAddress(gateway.address, gateway.port, "the ingress", "")
    try:
        with exchange(endpoint, "GET", "/", headers={"Host": gateway.domain}, timeout=PROBE_TIMEOUT) as response:
            return ProbeResponse(response.status)
    except ClientError as error:
        return ProbeResponse(0, str(error.__cause__ or error))
