"""Alert rules. Each has a runbook in docs/runbooks.md, with the heading of its name.

Format: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule: it fires when `expression` has had a result for `lasts`."""

    name: str
    expression: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str

    def to_json(self) -> dict[str, Any]:
        """Return the rule for a file of rules."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": f"docs/runbooks.md#{self.name.lower()}"},
        }


_MODEL: Final = "Model {{ $labels.namespace }}/{{ $labels.model }}"

ALERTS: Final = (
    Alert(
        "KnodelComponentDown", 'up{job=~"knodel.*"} == 0', "5m", "critical",
        "{{ $labels.job }} {{ $labels.instance }} does not answer.",
    ),
    Alert(
        "KnodelNoLeader", "sum by (job) (knodel_leader) == 0", "2m", "critical",
        "No replica of {{ $labels.job }} leads, so nothing is reconciled.",
    ),
    Alert("KnodelModelNotReady", "knodel_model_ready == 0", "15m", "warning", f"{_MODEL} is not ready."),
    Alert(
        "KnodelModelErrors",
        'sum by (namespace, model) (rate(knodel_requests_total{code=~"5.."}[5m])) '
        "/ sum by (namespace, model) (rate(knodel_requests_total[5m])) > 0.05",
        "5m", "critical", f"{_MODEL} answers {{{{ $value | humanizePercentage }}}} of requests with 5xx.",
    ),
    Alert(
        "KnodelRequestsWait", "knodel_revision_queued_requests > 0", "5m", "critical",
        "Requests wait for revision {{ $labels.namespace }}/{{ $labels.revision }}, which has no free replica.",
    ),
    Alert(
        "KnodelReplicasMissing",
        'sum by (namespace, model) (knodel_model_replicas{state="ready"}) '
        '< sum by (namespace, model) (knodel_model_replicas{state="desired"})',
        "15m", "warning", f"{_MODEL} has fewer ready replicas than desired.",
    ),
    Alert(
        "KnodelReplicasDoNotAnswer",
        'sum(rate(knodel_samples_total{result!="read"}[5m])) / sum(rate(knodel_samples_total[5m])) > 0.1',
        "10m", "warning", "The autoscaler cannot read {{ $value | humanizePercentage }} of the replicas.",
    ),
    Alert(
        "KnodelRolloutFailed", 'increase(knodel_rollouts_total{phase!="Promoted"}[15m]) > 0', "0m", "warning",
        "A rollout ended with {{ $labels.phase }}.",
    ),
    Alert(
        "KnodelRolloutHangs", "count by (namespace, model) (knodel_model_rollout_percent) > 0", "24h", "warning",
        f"The rollout of {_MODEL} has been in progress for a day.",
    ),
    Alert(
        "KnodelEventsFailed", 'sum by (namespace) (knodel_model_events{phase="Failed"}) > 0', "5m", "warning",
        "{{ $value }} events in {{ $labels.namespace }} could not be applied.",
    ),
    Alert(
        "KnodelEventsPending", 'sum by (namespace) (knodel_model_events{phase=~"Pending|Accepted"}) > 0', "15m",
        "warning", "{{ $value }} events in {{ $labels.namespace }} have not been applied.",
    ),
    Alert(
        "KnodelOutboxFull", "knodel_model_outbox_events > 0", "15m", "warning",
        f"Outcome events of {_MODEL} cannot be stored.",
    ),
    Alert(
        "KnodelWarmPoolEmpty",
        'knodel_warm_pool_members{state="ready"} == 0 and on (namespace, pool) '
        'knodel_warm_pool_members{state="desired"} > 0',
        "10m", "warning", "Warm pool {{ $labels.namespace }}/{{ $labels.pool }} has no ready member.",
    ),
    Alert(
        "KnodelReconcileErrors",
        'sum by (job, controller) (rate(knodel_reconcile_total{result="error"}[10m])) > 0.1',
        "10m", "warning", "Controller {{ $labels.controller }} fails {{ $value | humanize }} passes a second.",
    ),
)  # fmt: skip


def rule_groups() -> dict[str, Any]:
    """Return the content of a file of rules, which is also the `spec` of a PrometheusRule."""
    return {"groups": [{"name": "knodel", "rules": [alert.to_json() for alert in ALERTS]}]}


def make_prometheus_rule() -> dict[str, Any]:
    """Return the rules as an object of the Prometheus Operator."""
    labels = {"app.kubernetes.io/part-of": "knodel"}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "knodel", "namespace": "knodel-system", "labels": labels},
        "spec": rule_groups(),
    }
