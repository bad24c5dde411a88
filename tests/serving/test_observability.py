"""Metrics of objects, and what a Prometheus on one machine gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.net.exposition import render
from serving.observability.objects import RolloutCounter, event_families, model_families, pool_families
from serving.observability.scraping import prometheus_config, scrape_targets
from tests.manifests.alerts import ALERTS
from tests.manifests.dashboards import DASHBOARDS

DOCS = Path(__file__).parents[2] / "docs"


def model(**status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "iris"}, "spec": {}, "status": status}


def rollout(phase: str, candidate: str = "iris-00002", **more: Any) -> dict[str, Any]:
    return model(rollout={"phase": phase, "candidate": candidate, **more})


def lines(*families: Any) -> list[str]:
    return [line for line in render(families).splitlines() if line and not line.startswith("#")]


def test_a_model_that_is_ready_with_two_revisions() -> None:
    found = lines(
        *model_families(
            [
                model(
                    modelFormat="onnx",
                    conditions=[{"type": "Ready", "status": "True"}],
                    replicas={"desired": 2, "ready": 1, "starting": 1},
                    traffic=[
                        {"revision": "iris-00001", "version": "1", "percent": 90},
                        {"revision": "iris-00002", "version": "2", "percent": 10, "tag": "candidate"},
                        {"revision": "iris-00001", "version": "1", "percent": 0, "tag": "stable"},
                    ],
                )
            ]
        )
    )
    assert 'knodel_model_info{namespace="team",model="iris",format="onnx"} 1' in found
    assert 'knodel_model_ready{namespace="team",model="iris"} 1' in found
    assert 'knodel_model_replicas{namespace="team",model="iris",state="starting"} 1' in found
    traffic = [line for line in found if line.startswith("knodel_model_traffic_percent")]
    assert [line.rpartition(" ")[2] for line in traffic] == ["90", "10"]


def test_a_new_model_is_not_ready() -> None:
    assert 'knodel_model_ready{namespace="team",model="iris"} 0' in lines(*model_families([model()]))


def test_only_a_rollout_in_progress_has_numbers() -> None:
    judged: dict[str, Any] = {
        "percent": 10,
        "counts": {"stable": {"requests": 7}},
        "verdict": {"numbers": {"bound": 0.5}},
    }
    running = lines(*model_families([rollout("Progressing", **judged)]))
    ended = lines(*model_families([rollout("Promoted", **judged)]))
    labels = 'namespace="team",model="iris"'
    assert f"knodel_model_rollout_percent{{{labels}}} 10" in running
    assert f'knodel_model_rollout_responses{{{labels},version="stable",result="requests"}} 7' in running
    assert f'knodel_model_rollout_verdict{{{labels},number="bound"}} 0.5' in running
    assert [line for line in ended if "rollout" in line] == [
        f'knodel_model_rollout_phase{{{labels},phase="Promoted"}} 1'
    ]


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (None, rollout("Promoted"), 0),  # it had ended before this process started
        (rollout("Progressing"), rollout("Promoted"), 1),
        (rollout("Promoted"), rollout("Promoted"), 0),
        (rollout("Promoted", "iris-00001"), rollout("Promoted"), 1),  # the phase between was not seen
        (model(), rollout("Promoted"), 1),
        (rollout("Promoted"), None, 0),
    ],
)
def test_the_end_of_a_rollout_counts_once(before: Any, after: Any, count: int) -> None:
    counter = RolloutCounter()
    counter.on_model(before, after)
    assert f'knodel_rollouts_total{{phase="Promoted"}} {count}' in lines(*counter.families())


def test_pools_and_events() -> None:
    pool = {"metadata": {"namespace": "team", "name": "small"}, "status": {"size": 2, "ready": 1}}
    event = {"metadata": {"namespace": "team", "name": "e-1"}}
    applied = {**event, "status": {"phase": "Applied"}}
    found = lines(*pool_families([pool]), *event_families([event, applied, applied]))
    assert 'knodel_warm_pool_members{namespace="team",pool="small",state="desired"} 2' in found
    assert 'knodel_model_events{namespace="team",phase="Applied"} 2' in found
    assert 'knodel_model_events{namespace="team",phase="Pending"} 1' in found


def test_only_ready_replicas_of_revisions_are_scraped() -> None:
    def pod(name: str, status: str = "True", **labels: str) -> dict[str, Any]:
        metadata = {
            "namespace": "team",
            "name": name,
            "labels": {"knodel.dev/model": "iris", **labels},
            "annotations": {"embedded.knodel.dev/ports": '{"9095": 40001}'},
        }
        conditions = [{"type": "Ready", "status": status}]
        return {"metadata": metadata, "spec": {}, "status": {"podIP": "127.0.0.1", "conditions": conditions}}

    revision = {"serving.knative.dev/revision": "iris-00001"}
    pods = [pod("a", **revision), pod("b", "False", **revision), pod("c")]
    [found] = scrape_targets(pods)
    assert found["labels"] == {"namespace": "team", "model": "iris", "instance": "a"}
    assert len(found["targets"]) == 1


def test_the_configuration_of_prometheus_names_the_files_of_the_state_folder() -> None:
    found = yaml.safe_load(prometheus_config("127.0.0.1:8443", Path("/s/token"), Path("/s/tls/ca.crt")))
    own, models = found["scrape_configs"]
    assert own["static_configs"][0]["targets"] == ["127.0.0.1:8443"]
    assert models["http_sd_configs"][0]["url"] == "https://127.0.0.1:8443/metrics/targets"
    assert own["authorization"]["credentials_file"] == "/s/token"


def test_every_metric_of_a_dashboard_or_an_alert_is_described() -> None:
    described = set(re.findall(r"`((?:knodel|process)_[a-z_]+)`", (DOCS / "metrics.md").read_text()))
    queries = [query for board in DASHBOARDS for panel in board.panels for _, query in panel.queries]
    used = {
        re.sub(r"_(bucket|count|sum)$", "", name) if name not in described else name
        for query in (*queries, *(alert.expression for alert in ALERTS))
        for name in re.findall(r"\b(?:knodel|process)_[a-z_]+", query)
    }
    assert used <= described


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]
