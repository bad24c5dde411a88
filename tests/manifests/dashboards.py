"""Grafana dashboards as JSON. `make manifests` writes them; people import them or mount them by a sidecar.

The model of a dashboard: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
Every metric in them is described in docs/metrics.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA_VERSION: Final = 39  # of Grafana 10.4 and later, which migrate it
COLUMNS: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "$datasource"}
RATE: Final = "[$__rate_interval]"
OF_MODEL: Final = '{namespace=~"$namespace",model=~"$model"}'
"""Labels that both the pages of model servers (from their targets) and those of controllers have."""

Kind = Literal["timeseries", "stat", "bargauge", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: its queries by legend. `unit` is one of Grafana's; `needs` names the engine that alone fills it."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    about: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. `labels` are its variables, each with the metric whose label values are its choices."""

    name: str
    title: str
    about: str
    panels: Sequence[Panel]
    labels: Sequence[tuple[str, str]] = field(default=())

    def to_json(self) -> str:
        """Return the file's text."""
        document = {
            "uid": f"knodel-{self.name}",
            "title": f"Knodel / {self.title}",
            "description": self.about,
            "tags": ["knodel"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": list(self._variables())},
            "panels": list(self._panels()),
        }
        return json.dumps(document, indent=2) + "\n"

    def _variables(self) -> Iterator[dict[str, Any]]:
        yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
        chosen = ""
        for label, metric in self.labels:
            yield {
                "name": label,
                "label": label.capitalize(),
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": f"label_values({metric}{{{chosen}}}, {label})", "refId": label},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            chosen += f'{"," if chosen else ""}{label}=~"${label}"'

    def _panels(self) -> Iterator[dict[str, Any]]:
        left = top = 0
        for number, panel in enumerate(self.panels, 1):
            if left + panel.width > COLUMNS:
                left, top = 0, top + HEIGHT
            yield _panel_json(panel, number, {"x": left, "y": top, "w": panel.width, "h": HEIGHT})
            left += panel.width


def _panel_json(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend or "__auto"}
        for index, (legend, query) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {},
        "targets": targets,
    }


def _quantiles(metric: str, by: str = "", labels: str = OF_MODEL) -> list[tuple[str, str]]:
    """Return the queries of median and 99th percentile of a histogram."""
    groups, prefix = (f"le, {by}", f"{{{{{by}}}}} ") if by else ("le", "")
    return [
        (f"{prefix}{name}", f"histogram_quantile({quantile}, sum by ({groups}) (rate({metric}_bucket{labels}{RATE})))")
        for name, quantile in (("p50", 0.5), ("p99", 0.99))
    ]


def _failed_share(by: str) -> str:
    failed = '{namespace=~"$namespace",model=~"$model",code=~"5.."}'
    every = f"sum by ({by}) (rate(knodel_requests_total{OF_MODEL}{RATE}))"
    return f"(sum by ({by}) (rate(knodel_requests_total{failed}{RATE})) or 0 * {every}) / {every}"


_STARTS: Final = Panel("Duration of starts", _quantiles("knodel_replica_start_seconds", "kind", ""), "s")
MODELS: Final = (("namespace", "knodel_model_info"), ("model", "knodel_model_info"))

FLEET: Final = Dashboard(
    "fleet",
    "Fleet",
    "All Models: readiness, load, errors, latency, replicas, starts, events.",
    (
        Panel("Models", [("", "count(knodel_model_info)")], kind="stat", width=4),
        Panel("Not ready", [("", "count(knodel_model_ready == 0) or vector(0)")], kind="stat", width=4),
        Panel("Ready replicas", [("", 'sum(knodel_model_replicas{state="ready"})')], kind="stat", width=4),
        Panel("Rollouts in progress", [("", "count(knodel_model_rollout_percent) or vector(0)")], kind="stat", width=4),
        Panel("Requests/s", [("", f"sum(rate(knodel_requests_total{RATE}))")], "reqps", "stat", 4),
        Panel(
            "Events that failed",
            [("", 'sum(knodel_model_events{phase="Failed"}) or vector(0)')],
            kind="stat",
            width=4,
        ),
        Panel(
            "Requests/s by Model",
            [("{{namespace}}/{{model}}", f"sum by (namespace, model) (rate(knodel_requests_total{OF_MODEL}{RATE}))")],
            "reqps",
        ),
        Panel("Errors (5xx) by Model", [("{{namespace}}/{{model}}", _failed_share("namespace, model"))], "percentunit"),
        Panel("Latency by Model", _quantiles("knodel_request_duration_seconds", "model"), "s"),
        Panel("Replicas by state", [("{{state}}", "sum by (state) (knodel_model_replicas)")]),
        Panel(
            "Starts/min by kind",
            [("{{kind}}", f"60 * sum by (kind) (rate(knodel_replica_start_seconds_count{RATE}))")],
        ),
        _STARTS,
        Panel("Members of warm pools", [("{{pool}} {{state}}", "knodel_warm_pool_members")]),
        Panel("Events by phase", [("{{phase}}", "sum by (phase) (knodel_model_events)")]),
        Panel("Rollouts that ended", [("{{phase}}", "sum by (phase) (knodel_rollouts_total)")]),
    ),
    MODELS,
)

MODEL: Final = Dashboard(
    "model",
    "Model",
    "One Model: traffic, errors and latency of each revision, replicas, queue, slots.",
    (
        Panel("Traffic", [("{{revision}}", f"knodel_model_traffic_percent{OF_MODEL}")], "percent"),
        Panel(
            "Requests/s by revision",
            [("{{revision}}", f"sum by (revision) (rate(knodel_requests_total{OF_MODEL}{RATE}))")],
            "reqps",
        ),
        Panel("Errors (5xx) by revision", [("{{revision}}", _failed_share("revision"))], "percentunit"),
        Panel("Latency by revision", _quantiles("knodel_request_duration_seconds", "revision"), "s"),
        Panel(
            "Responses/s by code",
            [("{{protocol}} {{code}}", f"sum by (protocol, code) (rate(knodel_requests_total{OF_MODEL}{RATE}))")],
            "reqps",
        ),
        Panel("Replicas", [("{{state}}", f"sum by (state) (knodel_model_replicas{OF_MODEL})")]),
        Panel(
            "Slots",
            [
                ("busy", f"sum(knodel_slots_busy{OF_MODEL})"),
                ("all", f"sum(knodel_slots{OF_MODEL})"),
                ("waiting", f"sum(knodel_queue_length{OF_MODEL})"),
            ],
        ),
        Panel("Memory of the model", [("{{instance}}", f"knodel_model_memory_bytes{OF_MODEL}")], "bytes"),
        Panel("Stages of the start", [("{{revision}} {{stage}}", f"knodel_load_seconds{OF_MODEL}")], "s"),
    ),
    MODELS,
)

ROLLOUT: Final = Dashboard(
    "rollout",
    "Rollout",
    "A rollout as its judge sees it: shares, responses, and the verdict's numbers with their bounds.",
    (
        Panel("Phase", [("{{model}} {{phase}}", f"knodel_model_rollout_phase{OF_MODEL}")], kind="state-timeline"),
        Panel("Traffic of the candidate", [("{{model}}", f"knodel_model_rollout_percent{OF_MODEL}")], "percent"),
        Panel("Traffic by revision", [("{{revision}}", f"knodel_model_traffic_percent{OF_MODEL}")], "percent"),
        Panel("Responses in this step", [("{{version}} {{result}}", f"knodel_model_rollout_responses{OF_MODEL}")]),
        Panel("Numbers of the verdict", [("{{number}}", f"knodel_model_rollout_verdict{OF_MODEL}")]),
        Panel("Versions by outcome", [("{{outcome}}", f"knodel_model_versions{OF_MODEL}")]),
    ),
    MODELS,
)

OF_REVISION: Final = '{namespace=~"$namespace",revision=~"$revision"}'

AUTOSCALER: Final = Dashboard(
    "autoscaler",
    "Autoscaler and controllers",
    "Decisions of the autoscaler over the load they were made from, and the health of the controllers.",
    (
        Panel("Replicas", [("{{revision}} {{state}}", f"knodel_revision_replicas{OF_REVISION}")]),
        Panel("Slots in use", [("{{revision}}", f"knodel_revision_slots_in_use{OF_REVISION}")]),
        Panel("Requests at activators", [("{{revision}}", f"knodel_revision_queued_requests{OF_REVISION}")]),
        Panel(
            "Decisions/min by rule",
            [("{{rule}}", f"60 * sum by (rule) (rate(knodel_scaling_decisions_total{RATE}))")],
        ),
        _STARTS,
        Panel("Readings of replicas/s", [("{{result}}", f"sum by (result) (rate(knodel_samples_total{RATE}))")]),
        Panel(
            "Passes/s by controller",
            [("{{controller}} {{result}}", f"sum by (controller, result) (rate(knodel_reconcile_total{RATE}))")],
        ),
        Panel(
            "Time in passes",
            [("{{controller}}", f"sum by (controller) (rate(knodel_reconcile_seconds_total{RATE}))")],
            "percentunit",
        ),
        Panel("Queues", [("{{controller}}", "sum by (controller) (knodel_workqueue_depth)")]),
        Panel("Objects in memory", [("{{resource}}", "sum by (resource) (knodel_informer_objects)")]),
        Panel("Memory", [("{{job}} {{instance}}", 'process_resident_memory_bytes{job=~"knodel.*"}')], "bytes"),
        Panel("CPU", [("{{job}} {{instance}}", f'rate(process_cpu_seconds_total{{job=~"knodel.*"}}{RATE})')]),
    ),
    (("namespace", "knodel_revision_replicas"), ("revision", "knodel_revision_replicas")),
)

LLM: Final = Dashboard(
    "llm",
    "Language models",
    "Tokens, time to the first token, time between tokens, and the KV cache.",
    (
        Panel("Tokens/s", [("{{kind}}", f"sum by (kind) (rate(knodel_llm_tokens_total{OF_MODEL}{RATE}))")]),
        Panel("Time to first token", _quantiles("knodel_llm_first_token_seconds"), "s"),
        Panel("Time between tokens", _quantiles("knodel_llm_token_seconds"), "s"),
        Panel("KV cache", [("{{instance}}", f"knodel_llm_kv_share{OF_MODEL}")], "percentunit", needs="vLLM"),
        Panel("Slots in use", [("{{instance}}", f"knodel_slots_busy{OF_MODEL}")]),
        Panel("Requests that wait", [("{{instance}}", f"knodel_queue_length{OF_MODEL}")]),
    ),
    (("namespace", "knodel_llm_tokens_total"), ("model", "knodel_llm_tokens_total")),
)

_CLAIM: Final = 'knodel_gpu_claim_replicas{namespace=~"$namespace"'

_IN_NAMESPACE: Final = '{namespace=~"$namespace"}'

GPUS: Final = Dashboard(
    "gpus",
    "GPUs",
    "GPUs of the nodes, who wants how many, and what was granted.",
    (
        Panel("GPUs", [("", 'sum(knodel_gpu_units{state="total"})')], kind="stat", width=6),
        Panel("Held", [("", 'sum(knodel_gpu_units{state="held"})')], kind="stat", width=6),
        Panel(
            "Waiting replicas",
            [("", 'sum(knodel_gpu_claim_replicas{state="wanted"}) - sum(knodel_gpu_claim_replicas{state="granted"})')],
            kind="stat",
            width=6,
        ),
        Panel("By type", [("{{type}} {{state}}", "sum by (type, state) (knodel_gpu_units)")], width=6),
        Panel("Granted", [("{{claim}}", f'{_CLAIM},state="granted"}}')], width=12),
        Panel("Wanted", [("{{claim}}", f'{_CLAIM},state="wanted"}}')], width=12),
        Panel(
            "Utilization",
            [("{{namespace}}/{{model}}", f"avg by (namespace, model) (knodel_gpu_utilization{_IN_NAMESPACE})")],
            "percentunit",
            width=12,
            needs="NVML",
        ),
        Panel(
            "Memory in use",
            [
                (
                    "{{namespace}}/{{model}}",
                    f"sum by (namespace, model) (knodel_gpu_memory_used_bytes{_IN_NAMESPACE})"
                    f" / sum by (namespace, model) (knodel_gpu_memory_bytes{_IN_NAMESPACE})",
                )
            ],
            "percentunit",
            width=12,
            needs="NVML",
        ),
    ),
    (("namespace", "knodel_gpu_claim_replicas"),),
)

DASHBOARDS: Final = (FLEET, MODEL, ROLLOUT, AUTOSCALER, LLM, GPUS)
