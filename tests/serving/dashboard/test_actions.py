"""The actions: their commands, their confirmations, and that they are the operations of the command."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from clusters.base.objects import MODEL, MODEL_EVENT
from serving.cli.main import load_command
from serving.client.errors import UsageError
from serving.dashboard.actions import ACTIONS, applicable
from serving.dashboard.audit import AuditRecords
from tests.serving.dashboard.conftest import Desk, PlainServer, csrf_of, form_headers
from tests.serving.dashboard.test_pages import event, model, rollout
from tests.support.api import TOKEN, api_server


@pytest.fixture
async def connected(desk: Desk, tmp_path: Path) -> AsyncIterator[Desk]:
    """A dashboard whose actions reach the cluster of the test."""
    async with api_server(desk.cluster, tmp_path, tls=False) as config:
        address = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"]
        desk.access.server = PlainServer(urlsplit(address).netloc, TOKEN)
        yield desk


def test_every_action_is_a_command() -> None:
    for name in ACTIONS:
        assert load_command(name).name == name


@pytest.mark.parametrize(
    ("name", "form", "command"),
    [
        ("promote", {}, "knodel promote iris"),
        ("rollback", {}, "knodel rollback iris"),
        ("rollback", {"to": "iris-00001"}, "knodel rollback iris --to iris-00001"),
        ("rollback", {"to": "a b; rm -rf /"}, "knodel rollback iris --to 'a b; rm -rf /'"),
        ("traffic", {"percent.iris-00001": "90", "percent.iris-00002": " 10 "},
         "knodel traffic iris iris-00001=90 iris-00002=10"),
        ("traffic", {"percent.iris-00001": "100", "percent.iris-00002": ""}, "knodel traffic iris iris-00001=100"),
    ],
)  # fmt: skip
def test_the_command_of_an_action(name: str, form: dict[str, str], command: str) -> None:
    assert ACTIONS[name].command(model(), form) == command


def test_the_command_names_another_namespace() -> None:
    made = model()
    made["metadata"]["namespace"] = "team"
    assert ACTIONS["pause"].command(made, {}) == "knodel pause iris -n team"


@pytest.mark.parametrize("percents", [["90", "20"], ["-10", "110"], ["x", "100"], [""], ["1e2"], ["１００"]])
def test_a_split_that_is_none(percents: list[str]) -> None:
    form = {f"percent.iris-0000{index}": text for index, text in enumerate(percents)}
    with pytest.raises(UsageError):
        ACTIONS["traffic"].command(model(), form)


@pytest.mark.parametrize(
    ("status", "names"),
    [
        ({}, {"traffic", "rollback"}),
        ({"rollout": rollout()}, {"promote", "pause", "abort", "traffic", "rollback"}),
        ({"rollout": rollout(phase="Paused")}, {"promote", "resume", "abort", "traffic", "rollback"}),
        ({"history": [], "traffic": []}, set()),
    ],
)
def test_the_actions_that_make_sense(status: dict[str, Any], names: set[str]) -> None:
    assert {one.name for one in applicable(model(**status))} == names


async def test_an_action_is_confirmed_before_it_is_done(desk: Desk) -> None:
    await desk.add(MODEL, model(rollout=rollout()))
    browser = await desk.logged_in()
    text = (await browser.get("/dashboard/models/default/iris/do/pause")).text
    assert "knodel pause iris" in text
    assert 'id="confirm"' in text
    assert "paused" not in (await desk.cluster.get(MODEL, "iris", "default"))["spec"]["rollout"]


async def test_a_split_is_reviewed_with_its_command(desk: Desk) -> None:
    await desk.add(MODEL, model())
    browser = await desk.logged_in()
    path = "/dashboard/models/default/iris/do/traffic"
    asked = (await browser.get(path)).text
    assert 'name="percent.iris-00002"' in asked and 'id="confirm"' not in asked
    reviewed = await browser.get(path, params={"percent.iris-00001": "70", "percent.iris-00002": "30"})
    assert "knodel traffic iris iris-00002=30 iris-00001=70" in reviewed.text or "iris-00001=70" in reviewed.text
    assert 'id="confirm"' in reviewed.text
    wrong = await browser.get(path, params={"percent.iris-00001": "70", "percent.iris-00002": "40"})
    assert wrong.status_code == 422
    assert "add up to 110" in wrong.text and 'id="confirm"' not in wrong.text


async def test_an_unknown_action_does_not_exist(desk: Desk) -> None:
    await desk.add(MODEL, model())
    assert (await (await desk.logged_in()).get("/dashboard/models/default/iris/do/delete")).status_code == 404


async def test_the_error_of_an_operation_is_shown_with_its_remedy(connected: Desk) -> None:
    await connected.add(MODEL, model())
    browser = await connected.logged_in()
    csrf = csrf_of((await browser.get("/dashboard/")).text)
    answer = await browser.post("/dashboard/models/default/iris/do/pause", data={"csrf": csrf}, headers=form_headers())
    assert answer.status_code == 422
    assert "no running rollout" in answer.text
    assert 'role="alert"' in answer.text


async def test_a_replay_is_requested_as_by_the_command(connected: Desk) -> None:
    await connected.add(MODEL_EVENT, event("e-1", id="train-42", source="/train"))
    browser = await connected.logged_in()
    page = (await browser.get("/dashboard/events/default/e-1")).text
    assert "knodel events replay train-42 --source /train" in page
    answer = await browser.post(
        "/dashboard/events/default/e-1/replay", data={"csrf": csrf_of(page)}, headers=form_headers()
    )
    assert answer.status_code == 303
    stored = await connected.cluster.get(MODEL_EVENT, "e-1", "default")
    assert stored["metadata"]["annotations"]["knodel.dev/replay"]
    assert "Done: knodel events replay" in (await browser.get("/dashboard/events/default/e-1")).text


async def test_a_try_shows_the_response(desk: Desk) -> None:
    await desk.add(MODEL, model())
    browser = await desk.logged_in()
    page = (await browser.get("/dashboard/models/default/iris/try?example=1")).text
    assert "&#34;inputs&#34;" in page
    answer = await browser.post(
        "/dashboard/models/default/iris/try", data={"csrf": csrf_of(page), "body": "{}"}, headers=form_headers()
    )
    assert "iris-00001" in answer.text and "outputs" in answer.text


async def test_the_audit_has_logins_and_actions(connected: Desk, caplog: pytest.LogCaptureFixture) -> None:
    records = AuditRecords()
    caplog.set_level(logging.INFO, "serving.dashboard")
    await connected.add(MODEL, model())
    browser = await connected.logged_in()
    csrf = csrf_of((await browser.get("/dashboard/models/default/iris/do/promote")).text)
    await browser.post("/dashboard/models/default/iris/do/promote", data={"csrf": csrf}, headers=form_headers())
    done, login = [record["text"] for record in records.newest()]
    assert login == "tester logged in"
    assert done.startswith("tester: `knodel promote iris`")
