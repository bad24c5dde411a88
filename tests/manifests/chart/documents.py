"""The texts of the chart for people: `values.yaml` with comments, the README, and the notes after an installation."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Final

import yaml

from tests.manifests.chart.values import Value
from tests.manifests.text import WIDTH, BlockDumper

_TOP: Final = """\
# Knodel

Helm chart of Knodel, for a cluster with Knative Serving and an ingress such as Kourier. It installs the same objects as
`knodel install` and the kustomize overlay `production`.

<!-- Made from {source} by make manifests: do not edit. -->

    helm install knodel oci://knodel.dev/charts/knodel --namespace knodel-system --create-namespace \\
        --set settings.gateway.address=ADDRESS,settings.gateway.domain=DOMAIN

In a clone of the repository, write `charts/knodel` for the address. ADDRESS and DOMAIN are those of Knative's ingress;
`knodel predict` uses them. `knodel version --kube-context NAME` shows the versions of the command and of the cluster.

## Namespace

All objects are in the namespace `knodel-system`, since the `knodel` command looks there. Helm creates it without the
label of Pod Security, which all Pods of the chart meet:

    kubectl label namespace knodel-system pod-security.kubernetes.io/enforce=restricted

With `namespace.create=true` the namespace is part of the release. Helm then has to keep its records in another one:
`helm install knodel … --namespace default --set namespace.create=true`.

## Upgrades

    helm upgrade knodel oci://knodel.dev/charts/knodel --namespace knodel-system --version VERSION

The definitions of Models and the other kinds are templates, not files of `crds/`, so that an upgrade updates them, and
does so before the controllers start. They have the annotation `helm.sh/resource-policy: keep`: `helm uninstall` leaves
them and all Models. `knodel uninstall` removes them too. A downgrade to the former minor version is an upgrade with its
version.

An installation by `knodel install` or `kubectl apply -k` becomes a release by `helm install --take-ownership`, with the
settings of its ConfigMap `knodel-config` as the value `settings`.

Set settings as values: `helm upgrade` replaces what `knodel config --set` wrote for the same keys.

## Argo CD and Flux

Set `poolKey.create=false` where the chart is only rendered, since Helm cannot then read the present key, and create the
Secret once:

    kubectl -n knodel-system create secret generic knodel-pool-key --from-file=key=<(head -c 32 /dev/urandom)

## Values

| value | default | description |
|---|---|---|
"""
_NOTES: Final = """\
Knodel {{ .Chart.AppVersion }} is installed in the namespace knodel-system.

  kubectl -n knodel-system rollout status deployment/knodel-controller
  knodel doctor --kube-context NAME
  knodel deploy magika --uri URI --kube-context NAME
{{- if ne .Release.Namespace "knodel-system" }}
{{- if not .Values.namespace.create }}

The release is in the namespace {{ .Release.Namespace }}, its objects are in knodel-system, which must exist.
{{- end }}
{{- end }}
{{- if not (dig "gateway" "address" "" .Values.settings) }}

`knodel predict` needs the address of Knative's ingress: set settings.gateway.address and settings.gateway.domain.
{{- end }}
{{- if not .Values.poolKey.create }}

Create the Secret knodel-pool-key, or each replica of the autoscaler replaces the members of warm pools of the other.
{{- end }}
{{- if lt (int .Values.controller.replicas) 2 }}

The controller has one replica: rollouts pause while its node restarts. Requests to models do not need it.
{{- end }}
"""


def make_notes() -> str:
    """Return the notes that Helm prints after an installation."""
    return _NOTES


def make_readme(values: Sequence[Value], source: str) -> str:
    """Return the README with the table of values."""
    rows = "".join(f"| `{one.path}` | `{json.dumps(one.default)}` | {one.about} |\n" for one in values)
    return _TOP.format(source=source) + rows


def make_values_file(values: Sequence[Value]) -> str:
    """Return `values.yaml`: every value with its description as a comment, in the order of the list.

    Example:
        >>> print(make_values_file([Value("image.tag", "", "Tag.", {})]), end="")
        image:
          # Tag.
          tag: ''
    """
    lines: list[str] = []
    open_parents: list[str] = []
    for value in values:
        *parents, last = value.path.split(".")
        if parents != open_parents:
            lines += [f"{'  ' * depth}{name}:" for depth, name in enumerate(parents)]
            open_parents = parents
        indent = "  " * len(parents)
        lines += [f"{indent}# {line}" for line in textwrap.wrap(value.about, WIDTH - len(indent) - 2)]
        dumped = yaml.dump({last: value.default}, Dumper=BlockDumper, sort_keys=False, allow_unicode=True)
        lines += [f"{indent}{line}" for line in dumped.splitlines()]
    return "\n".join(lines) + "\n"
