"""What `knodel doctor --kube-context` looks at: API server, Knative, Knodel, ingress. Nothing here changes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, MODEL, REVISION, Kind, Object, name_of
from clusters.base.version import VERSION
from serving.cli.base.errors import CommandError
from serving.cli.client.client import Client
from serving.cli.client.http import Endpoint, exchange
from serving.cli.context import Session
from serving.cli.doctor import cluster as doctor
from serving.cli.doctor.cluster import Right, Unseen
from serving.cli.doctor.examine_models import examine_there
from serving.cli.doctor.findings import Finding, Reply
from serving.cli.installed import CONFIG_NAME, SYSTEM_NAMESPACE, installed_settings
from serving.makers.knative_flags import FLAGS
from serving.makers.knative_flags import NAMESPACE as KNATIVE_NAMESPACE
from serving.types.settings.settings import GatewaySettings

PATIENCE = 5.0  # s for one answer; a cluster far away takes a tenth of it
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
"""A question to the API server, which no cluster stores."""
EMBEDDED = "+knodel."
"""Part of the `gitVersion` of every platform of `knodel up`."""
OF_A_PLATFORM = "leave --kube-context out: `doctor` then checks the platform of this machine"
CORE = ("controller", "webhook", "activator", "autoscaler")
"""The Deployments of Knative Serving without which no revision comes up; others may stand beside them."""


def examine_cluster(session: Session, context: str) -> Iterator[Finding]:
    """Every check, in the order in which things depend on one another; the first ends it when nobody answers."""
    try:
        client = session.client(PATIENCE)
        version = client.read("/version")
        if EMBEDDED in str(version.get("gitVersion")):
            yield Finding("API server", False, f"context {context} is a platform of `knodel up`", OF_A_PLATFORM)
            return
        rights = _rights(session.namespace)
        denied = [right for right in rights if not _may(client, right)]
    except KnodelError as error:
        yield Finding("API server", False, *_halves(error))
        return
    install = f"`knodel install --kube-context {context}`"
    yield Finding("API server", True, f"context {context} answers and knows who asks")
    yield doctor.judge_kubernetes(version)
    yield doctor.judge_rights(denied, len(rights), session.namespace)
    yield from _knative(client)
    model = doctor.judge_resources("Model", _resources(client, MODEL), MODEL.resource, install)
    yield model
    deployments = _deployments(client, SYSTEM_NAMESPACE)
    yield doctor.judge_deployments("Knodel", SYSTEM_NAMESPACE, deployments, install)
    if deployments and not isinstance(deployments, Unseen):
        yield doctor.judge_version(deployments, VERSION)
    yield from _settings_and_ingress(client, context)
    if model.ok:
        yield from examine_there(client, session.namespace)


def _rights(namespace: str) -> list[Right]:
    def here(verb: str, resource: str, needed_by: str, group: str = "") -> Right:
        return Right(verb, resource, group, needed_by, namespace)

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
        Right("get", "configmaps", "", "predict, config, render", SYSTEM_NAMESPACE, CONFIG_NAME),
    ]


def _may(client: Client, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource,
        "namespace": right.namespace, "name": right.name,
    }  # fmt: skip
    review = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    status = client.ask(ACCESS_REVIEW, review).get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def _knative(client: Client) -> Iterator[Finding]:
    remedy = "install Knative Serving 0.50 with an ingress such as Kourier"
    yield doctor.judge_resources("Knative Serving", _resources(client, REVISION), REVISION.resource, remedy)
    found = _deployments(client, KNATIVE_NAMESPACE)
    if not isinstance(found, Unseen):
        missing = [name for name in CORE if name not in map(name_of, found)]
        found = found if not missing else Unseen(f"no Deployment {', '.join(missing)}", forbidden=False)
    yield doctor.judge_deployments("Knative's Deployments", KNATIVE_NAMESPACE, found, remedy)
    names = dict.fromkeys(flag.configmap for flag in FLAGS)
    yield from doctor.judge_flags(FLAGS, {name: _config(client, name) for name in names})


def _resources(client: Client, kind: Kind) -> Sequence[str] | None:
    """The resources of the kind's group and version, by discovery, which whoever is logged in may ask."""
    try:
        found = client.read(f"/apis/{kind.api_version}").get("resources")
    except KnodelError:  # the group is unknown; that the server answers has been seen
        return None
    return [str(one.get("name")) for one in found if isinstance(one, dict)] if isinstance(found, list) else None


def _deployments(client: Client, namespace: str) -> Sequence[Object] | Unseen:
    try:
        found: list[Object] = client.list(DEPLOYMENT, namespace)["items"]
    except KnodelError as error:
        return _unseen(error)
    return found


def _config(client: Client, name: str) -> Mapping[str, str] | Unseen:
    try:
        data = client.get(CONFIG_MAP, name, KNATIVE_NAMESPACE).get("data")
    except KnodelError as error:
        return _unseen(error)
    return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def _halves(error: KnodelError) -> tuple[str, str]:
    """What is wrong and the remedy, which stand in this order in every message of the command."""
    what, _, remedy = str(error).rpartition(": ")
    return (what, remedy) if what else (remedy, "see the kubeconfig")


def _unseen(error: KnodelError) -> Unseen:
    return Unseen(str(error), isinstance(error, Forbidden))


def _settings_and_ingress(client: Client, context: str) -> Iterator[Finding]:
    try:
        gateway: GatewaySettings = installed_settings(client, context).gateway
    except KnodelError as error:
        what, remedy = _halves(error)
        yield doctor.judge_settings(Unseen(what, isinstance(error, Forbidden)), remedy)
        return
    yield doctor.judge_settings(gateway)
    yield doctor.judge_ingress(gateway, _reply(gateway))


def _reply(gateway: GatewaySettings) -> Reply:
    """What the ingress says to a host that no model has; any answer is one."""
    endpoint = Endpoint(gateway.address, gateway.port, "the ingress", "")
    try:
        with exchange(endpoint, "GET", "/", headers={"Host": gateway.domain}, timeout=PATIENCE) as answer:
            return Reply(answer.status)
    except CommandError as error:
        return Reply(0, str(error.__cause__ or error))
