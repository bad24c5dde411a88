"""Configurations and statuses of Ray Serve's applications, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serving.engines.ray.applications import (
    NotRunning,
    WrongConfig,
    check_statuses,
    deploy_config,
    missing_resources,
    total_slots,
)


def details(status: str = "RUNNING", **deployments: dict[str, Any]) -> dict[str, Any]:
    application = {"status": status, "message": "", "deployments": deployments}
    application["deployment_topology"] = {"ingress_deployment": "Front"}
    return {"applications": {"default": application}}


def deployment(replicas: int = 1, cpus: float = 1.0, **config: Any) -> dict[str, Any]:
    return {
        "message": "", "target_num_replicas": replicas, "required_resources": {"CPU": cpus},
        "deployment_config": {"num_replicas": replicas, **config},
    }  # fmt: skip


@pytest.mark.parametrize(("given", "path"), [("", "app:app"), ("shop.ranker:built", "shop.ranker:built")])
def test_an_import_path_is_one_application_at_the_root(tmp_path: Path, given: str, path: str) -> None:
    (application,) = deploy_config(tmp_path, False, given)["applications"]
    assert (application["import_path"], application["route_prefix"]) == (path, "/")


def test_a_configuration_keeps_its_applications_and_loses_what_the_server_determines(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(
        "proxy_location: EveryNode\nhttp_options: {host: 0.0.0.0, port: 8000}\ngrpc_options: {port: 9000}\n"
        "logging_config: {log_level: DEBUG}\napplications:\n- {name: a, import_path: 'a:app', route_prefix: /a}\n"
    )
    assert deploy_config(tmp_path, True, "") == {
        "logging_config": {"log_level": "DEBUG"},
        "applications": [{"name": "a", "import_path": "a:app", "route_prefix": "/a"}],
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "applications: []", "applications: app", "a: 1\n---\nb: 1", "a: &a [*a]", "{"]
)
def test_a_configuration_without_applications_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "serve.yaml").write_text(text)
    with pytest.raises(WrongConfig, match=r"^serve\.yaml "):
        deploy_config(tmp_path, True, "")


def test_running_applications_have_no_reason() -> None:
    assert check_statuses(details(Front=deployment())) == ""


def test_the_reason_has_the_messages_of_the_application_and_its_deployments() -> None:
    given = details("UNHEALTHY", Front={**deployment(), "message": "replica\nis dead"})
    assert check_statuses(given) == "the application default is UNHEALTHY: replica is dead"


def test_a_failed_application_ends_the_start() -> None:
    with pytest.raises(NotRunning, match="the application default is DEPLOY_FAILED: ModuleNotFoundError: x"):
        check_statuses(details("DEPLOY_FAILED", Front={**deployment(), "message": "ModuleNotFoundError: x"}))


def test_deployments_that_need_more_than_there_is_are_named_with_the_remedy() -> None:
    given = details(Front=deployment(), Back=deployment(2, 0.5))
    assert missing_resources(given, {"CPU": 2.0}) == ""
    assert missing_resources(given, {"CPU": 1.0}) == (
        "the deployments need 2 CPU, and Ray has 1: raise resources.cpu, or set num_cpus in ray_actor_options of the "
        "deployments"
    )
    assert missing_resources(details(Front={"target_num_replicas": 1, "required_resources": {"GPU": 1}}), {}) == (
        "the deployments need 1 GPU, and Ray has 0: change ray_actor_options of the deployments"
    )


@pytest.mark.parametrize(
    ("config", "slots"),
    [
        ({}, 5),
        ({"max_ongoing_requests": 20}, 20),
        ({"num_replicas": 3, "max_ongoing_requests": 2}, 6),
        ({"num_replicas": "auto", "autoscaling_config": {"max_replicas": 4}}, 20),
    ],
)
def test_the_slots_are_those_of_the_ingress_at_full_scale(config: dict[str, Any], slots: int) -> None:
    given = details(Front=deployment(**{"replicas": 1, **{k: v for k, v in config.items() if k != "num_replicas"}}))
    given["applications"]["default"]["deployments"]["Front"]["deployment_config"] |= config
    given["applications"]["default"]["deployments"]["Back"] = deployment(max_ongoing_requests=1000)
    assert total_slots(given) == slots
