"""The templates of the chart, from the objects of the production overlay and of the components. Pure.

With default values, they render the objects of the overlay, except for the namespace, and the Secret of warm pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import Object, labels_of, name_of
from serving.install.bundle import LABEL, PART_OF
from tests.manifests.chart.insertions import Insertions, conditional
from tests.manifests.chart.values import COMPONENTS, OPTIONAL

POLICIES: Final = {"events": "eventing", "events-to-issuers": "eventing",
                   "requests-to-router": "router", "router-to-ingress": "router"}  # fmt: skip
"""NetworkPolicies of components that can be left out."""
DASHBOARD_HOSTS: Final = "KNODEL_DASHBOARD_HOSTS"
KEEP: Final = "helm.sh/resource-policy"
NAMESPACE: Final = "$namespace"
_POD: Final = ("spec", "template", "spec")
_CONTAINER: Final = (*_POD, "containers", 0)


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that the chart installs: always, or with one of its flags."""

    installation: Sequence[Object]
    knative_eventing: Sequence[Object]
    config_readers: Sequence[Object]
    monitoring: Sequence[Object]
    dashboard: Sequence[Object]
    model_namespace: Sequence[Object]
    finalizer_rules: dict[str, list[Object]]
    """Rules that `ownerEnforcement` adds to a ClusterRole, by its name."""


def make_templates(sources: Sources) -> dict[str, str]:
    """Return the text of each template by its file name. Raises KeyError for a kind that has no template."""
    files: dict[str, list[str]] = {}
    for obj in sources.installation:
        file, condition = _place(obj)
        files.setdefault(file, []).append(conditional(condition, [_text(obj, sources)]))
    extras = {
        "knative-eventing.yaml": ("Values.knativeEventing.enabled", sources.knative_eventing),
        "config-readers.yaml": ("Values.configReaders.enabled", sources.config_readers),
        "monitoring.yaml": ("Values.monitoring.enabled", sources.monitoring),
        "dashboard.yaml": ("Values.dashboard.enabled", sources.dashboard),
    }
    for file, (flag, objects) in extras.items():
        documents = [_text(one, sources) for one in objects]
        files[file] = [conditional(f".{flag}", [*documents, *([DASHBOARDS] if file == "monitoring.yaml" else [])])]
    files["model-namespaces.yaml"] = [_for_each_namespace(sources.model_namespace)]
    files["pool-key.yaml"] = [POOL_KEY]
    files["_helpers.tpl"] = [HELPERS]
    return {file: "".join(texts) for file, texts in files.items()}


def _place(obj: Object) -> tuple[str, str]:
    """Return the file of an object, and the condition for its installation."""
    kind, name = obj["kind"], name_of(obj)
    if kind == "NetworkPolicy":
        component = POLICIES.get(name)
        enabled = ".Values.networkPolicies.enabled"
        return "network-policies.yaml", f"and {enabled} .Values.{component}.enabled" if component else enabled
    file, condition = _BY_KIND.get(kind, ("", ""))
    if file:
        return file, condition
    component = name.removeprefix("knodel-")
    if component not in COMPONENTS:
        return "rbac.yaml", ""
    flags = [f".Values.{component}.enabled"] if component in OPTIONAL else []
    if kind == "PodDisruptionBudget":  # with one replica, it would block every drain
        flags += [".Values.podDisruptionBudgets.enabled", f"(gt (int .Values.{component}.replicas) 1)"]
    return f"{component}.yaml", flags[0] if len(flags) == 1 else f"and {' '.join(flags)}" if flags else ""


_BY_KIND: Final = {
    "Namespace": ("namespace.yaml", ".Values.namespace.create"),
    "CustomResourceDefinition": ("crds.yaml", ".Values.crds.install"),
    "ValidatingAdmissionPolicy": ("admission.yaml", ""),
    "ValidatingAdmissionPolicyBinding": ("admission.yaml", ""),
    "PriorityClass": ("priority-classes.yaml", ".Values.priorityClasses.enabled"),
    "ConfigMap": ("config.yaml", ""),
}


def _text(obj: Object, sources: Sources) -> str:
    made = Insertions(obj)
    edit = _EDITS.get(obj["kind"])
    if edit is not None:
        edit(made, sources)
    return made.text()


def _deployment(made: Insertions, _: Sources) -> None:
    component = name_of(made.object).removeprefix("knodel-")
    if component in COMPONENTS:
        made.scalar(("spec", "replicas"), f".Values.{component}.replicas")
    for index, variable in enumerate(made.at(*_CONTAINER, "env")):
        if variable["name"] == DASHBOARD_HOSTS:
            made.scalar((*_CONTAINER, "env", index, "value"), ".Values.dashboard.hosts | quote")
    made.scalar((*_CONTAINER, "image"), 'include "knodel.image" .')
    made.optional(_CONTAINER, "imagePullPolicy", ".Values.image.pullPolicy")
    made.block((*_CONTAINER, "resources"), f".Values.{component}.resources")
    made.items((*_CONTAINER, "env"), ".Values.env")
    made.lines((*_CONTAINER, "args"), "{{- with .Values.logLevel }}", "- --log-level", "- {{ . }}", "{{- end }}")
    made.optional(_POD, "imagePullSecrets", ".Values.image.pullSecrets")
    for key in ("nodeSelector", "tolerations", "priorityClassName"):
        made.optional(_POD, key, f".Values.{key}")


def _definition(made: Insertions, _: Sources) -> None:
    keep = ("{{- if .Values.crds.keep }}", "annotations:", f"  {KEEP}: keep", "{{- end }}")
    made.lines(("metadata",), *keep)


def _settings(made: Insertions, _: Sources) -> None:
    made.literal(("data", "config.yaml"), "toYaml .Values.settings")


def _cluster_role(made: Insertions, sources: Sources) -> None:
    rules = sources.finalizer_rules.get(name_of(made.object))
    if rules:
        flow = [f"- apiGroups: {_flow(rule['apiGroups'])}\n  resources: {_flow(rule['resources'])}\n"
                f"  verbs: {_flow(rule['verbs'])}" for rule in rules]  # fmt: skip
        lines = "\n".join(flow).splitlines()
        made.lines(("rules",), "{{- if .Values.ownerEnforcement.enabled }}", *lines, "{{- end }}")


def _flow(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"


_EDITS: Final[dict[str, Callable[[Insertions, Sources], None]]] = {
    "Deployment": _deployment,
    "CustomResourceDefinition": _definition,
    "ConfigMap": _settings,
    "ClusterRole": _cluster_role,
}


def _for_each_namespace(objects: Sequence[Object]) -> str:
    def documents() -> Iterator[str]:
        for obj in objects:
            labels = {**labels_of(obj), LABEL: PART_OF}
            made = Insertions({**obj, "metadata": {"name": name_of(obj), "namespace": "", "labels": labels}})
            made.scalar(("metadata", "namespace"), NAMESPACE)
            yield f"---\n{made.text()}"

    return f"{{{{- range {NAMESPACE} := .Values.modelNamespaces }}}}\n{''.join(documents())}{{{{- end }}}}\n"


HELPERS: Final = """\
{{/* The image of the Deployments. */}}
{{- define "knodel.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
"""
POOL_KEY: Final = """\
{{- if .Values.poolKey.create }}
{{- $found := lookup "v1" "Secret" "knodel-system" "knodel-pool-key" }}
---
apiVersion: v1
kind: Secret
metadata:
  name: knodel-pool-key
  namespace: knodel-system
  labels:
    app.kubernetes.io/part-of: knodel
  annotations:
    helm.sh/resource-policy: keep
type: Opaque
data:
{{- if $found }}
  key: {{ $found.data.key }}
{{- else }}
  key: {{ randBytes 32 }}
{{- end }}
{{- end }}
"""
"""The key stays the same in every upgrade: a new one would replace all members of warm pools."""
DASHBOARDS: Final = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: knodel-dashboards
  namespace: knodel-system
  labels:
    app.kubernetes.io/part-of: knodel
    grafana_dashboard: "1"
data:
{{ (.Files.Glob "dashboards/*.json").AsConfig | indent 2 }}
"""
