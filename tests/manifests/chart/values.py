"""The values of the chart, each declared once: its default, description and JSON schema. Pure.

`values.yaml`, `values.schema.json` and the table of the chart's README are made from `make_values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusters.base.objects import DEPLOYMENT, Object, name_of
from clusters.runtime.manager.options import LEVELS
from serving.crds.documents import DIALECT
from serving.types.settings.settings import FREE_FORM, describe_settings

Schema = dict[str, Any]
COMPONENTS: Final = ("controller", "autoscaler", "eventing", "router")
OPTIONAL: Final = ("eventing", "router")
"""Components that an installation can do without."""
_FLAG: Final[Schema] = {"type": "boolean"}
_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_QUANTITIES: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"},
}
_RESOURCES: Final[Schema] = {
    "type": "object",
    "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES},
    "additionalProperties": False,
}
_NAMESPACE: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
_ABOUT: Final = {
    "controller": "Models: revisions, traffic and rollouts.",
    "autoscaler": "Replicas and warm pools.",
    "eventing": "The webhook for events of trainings and registries.",
    "router": "The one address of all language models.",
}
_TYPES: Final = {bool: ["boolean"], int: ["integer"], float: ["number"], str: ["string"]}


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its path in `values.yaml` with dots, its default, its description and its JSON schema."""

    path: str
    default: Any
    about: str
    schema: Schema


def make_values(objects: Sequence[Object]) -> list[Value]:
    """Return all values. Replicas and resources are those of the objects: of the overlay, and of the dashboard."""
    return [
        Value("image.repository", "knodel.dev/controller", "Image of the four Deployments, without a tag.", _TEXT),
        Value("image.tag", "", "Tag of the image; by default the version of the chart.", _TEXT),
        Value("image.digest", "", "Digest of the image; it replaces the tag.",
              {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}),
        Value("image.pullPolicy", "", "When to pull the image; by default as Kubernetes does.",
              {"enum": ["", "Always", "IfNotPresent", "Never"]}),
        Value("image.pullSecrets", [], "Secrets for the registry: a list of `{name: NAME}`.",
              {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": _TEXT},
                                          "additionalProperties": False}}),
        Value("namespace.create", False,
              "Make the namespace knodel-system a part of the release. The release itself must then be in another one.",
              _FLAG),
        Value("crds.install", True, "Install and upgrade the CustomResourceDefinitions.", _FLAG),
        Value("crds.keep", True, "Keep the definitions, and so all Models, when the release is uninstalled.", _FLAG),
        Value("poolKey.create", True,
              "Create the Secret knodel-pool-key once. Set it to false where charts are only rendered (Argo CD), and "
              "create the Secret yourself.", _FLAG),
        Value("settings", {}, "Settings of Knodel: the content of `config.yaml` in the ConfigMap knodel-config.",
              _settings_schema()),
        Value("logLevel", "", "Lowest level of log records; by default info.", {"enum": ["", *LEVELS]}),
        Value("env", [], "Variables of all containers, such as proxies: entries of Kubernetes' `env`.",
              {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": _TEXT}}}),
        Value("nodeSelector", {}, "Labels of the nodes for all Pods.", _TEXTS),
        Value("tolerations", [], "Tolerations of all Pods.", {"type": "array", "items": {"type": "object"}}),
        Value("priorityClassName", "", "PriorityClass of all Pods.", _TEXT),
        *(value for name in COMPONENTS for value in _component_values(name, objects)),
        Value("dashboard.enabled", False, "Install the dashboard, with one replica (docs/dashboard.md).", _FLAG),
        Value("dashboard.hosts", "", "Names of an ingress or proxy in front of it, with commas.", _TEXT),
        Value("dashboard.resources", _resources("dashboard", objects), "Requests and limits of its container.",
              _RESOURCES),
        Value("podDisruptionBudgets.enabled", True, "Keep one replica of each component during node drains.", _FLAG),
        Value("networkPolicies.enabled", True, "Deny all connections of the namespace that no policy names.", _FLAG),
        Value("priorityClasses.enabled", True, "PriorityClasses for models and training that share GPUs.", _FLAG),
        Value("knativeEventing.enabled", False, "Models as sinks of Knative Eventing; jobs that ended unseen.", _FLAG),
        Value("monitoring.enabled", False, "PodMonitors, alert rules and dashboards, for the Prometheus Operator.",
              _FLAG),
        Value("configReaders.enabled", False, "Let every authenticated caller read the settings.", _FLAG),
        Value("ownerEnforcement.enabled", False,
              "Rights for clusters with the admission plugin OwnerReferencesPermissionEnforcement (OpenShift).", _FLAG),
        Value("modelNamespaces", [], "Existing namespaces of Models that get network policies.",
              {"type": "array", "items": _NAMESPACE, "uniqueItems": True}),
    ]  # fmt: skip


def nested(values: Sequence[Value]) -> dict[str, Any]:
    """Return the defaults as one mapping.

    Example:
        >>> nested([Value("image.tag", "", "Tag.", {})])
        {'image': {'tag': ''}}
    """
    made: dict[str, Any] = {}
    for value in values:
        *parents, last = value.path.split(".")
        inner = made
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value.default
    return made


def make_schema(values: Sequence[Value]) -> Schema:
    """Return the JSON schema of all values. Unknown keys are errors."""
    whole: Schema = {"$schema": DIALECT, "title": "Values of the chart knodel", **_mapping()}
    for value in values:
        *parents, last = value.path.split(".")
        inner = whole
        for parent in parents:
            inner = inner["properties"].setdefault(parent, _mapping())
        inner["properties"][last] = {"description": value.about, **value.schema}
    whole["properties"]["global"] = {"type": "object", "description": "Values of a parent chart; not used."}
    return whole


def _mapping() -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _component_values(name: str, objects: Sequence[Object]) -> list[Value]:
    enabled = [Value(f"{name}.enabled", True, f"Install the component. {_ABOUT[name]}", _FLAG)]
    return [
        *(enabled if name in OPTIONAL else []),
        Value(f"{name}.replicas", _spec(name, objects)["replicas"], f"Number of replicas. {_ABOUT[name]}",
              {"type": "integer", "minimum": 1, "maximum": 50}),
        Value(f"{name}.resources", _resources(name, objects), "Requests and limits of its container.", _RESOURCES),
    ]  # fmt: skip


def _spec(name: str, objects: Sequence[Object]) -> Object:
    """Return the spec of a component's Deployment."""
    [deployment] = [one for one in objects if one["kind"] == DEPLOYMENT.kind and name_of(one) == f"knodel-{name}"]
    spec: Object = deployment["spec"]
    return spec


def _resources(name: str, objects: Sequence[Object]) -> Object:
    found: Object = _spec(name, objects)["template"]["spec"]["containers"][0]["resources"]
    return found


def _settings_schema() -> Schema:
    """Return the schema of the settings: known groups and keys, with the types of their defaults."""
    schema = _mapping()
    for one in describe_settings():
        group, _, key = one["key"].partition(".")
        types = ["string", "number"] if one["unit"] == "s" else _TYPES[type(one["default"])]
        inner = schema["properties"].setdefault(group, _mapping())
        inner["properties"][key] = {"type": types, "description": one["for"]}
    for group in sorted(FREE_FORM):
        schema["properties"][group] = {"type": "object"}
    return schema
