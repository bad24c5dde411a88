"""Every change and every refusal leaves a line that says who, what and with what end; no line holds a secret."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from serving.control_api.audit import REFUSALS, Audit, record
from tests.scenarios.world import model
from tests.serving.control_api.conftest import Served
from tests.serving.control_api.test_resources import JSON, MERGE, MODELS, call

SECRET = "s3cr3t"


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What was written."""
    said = (one.getMessage() for one in caplog.records if one.name == "serving.control_api.audit")
    return [json.loads(one.removeprefix("audit ")) for one in said]


async def test_changes_are_told_with_their_end_and_reads_are_not(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "serving.control_api.audit")
    agent = {"User-Agent": "knodel/1"}
    await call(served, "POST", MODELS, json.dumps(model("a", "default")).encode(), JSON | agent)
    await call(served, "GET", f"{MODELS}/a")
    await call(served, "PATCH", f"{MODELS}/nobody?fieldManager=x", b"{}", MERGE)
    await call(served, "DELETE", f"{MODELS}/a")

    told = lines(caplog)
    assert [(one["method"], one["path"], one["status"]) for one in told] == [
        ("POST", MODELS, 201), ("PATCH", f"{MODELS}/nobody", 404), ("DELETE", f"{MODELS}/a", 200)
    ]  # fmt: skip
    assert told[0]["agent"] == "knodel/1"
    assert told[0]["client"].startswith("127.0.0.1:")


async def test_a_dry_run_is_told_as_one_and_nothing_else_of_the_query_is(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "serving.control_api.audit")
    body = json.dumps(model("a", "default")).encode()
    for query in ("?dryRun=All&fieldManager=" + SECRET, "?dryRun=&fieldManager=" + SECRET):
        assert (await call(served, "POST", MODELS + query, body))[0] == 201
    await call(served, "DELETE", f"{MODELS}/a?dryRun=All")
    await call(served, "DELETE", f"{MODELS}/a")

    told = lines(caplog)
    assert [(one["method"], one.get("dryRun")) for one in told] == [
        ("POST", True), ("POST", None), ("DELETE", True), ("DELETE", None)
    ]  # fmt: skip
    assert SECRET not in caplog.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {SECRET}"}, 401),
        ({"Host": "rebound.example"}, 403),
        ({"Origin": "https://page.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.page.example"}, 403),
    ],
)
async def test_no_method_passes_without_token_host_and_origin_and_each_refusal_is_told_without_the_token(
    served: Served, caplog: pytest.LogCaptureFixture, method: str, headers: dict[str, str], status: int
) -> None:
    assert (await call(served, method, f"{MODELS}/a?key={SECRET}", headers=headers))[0] == status
    [told] = lines(caplog)
    assert (told["method"], told["status"]) == (method, status)
    assert SECRET not in caplog.text


def test_strangers_cannot_fill_the_disk_and_how_many_were_not_told_is(caplog: pytest.LogCaptureFixture) -> None:
    now = [5.0]
    audit = Audit(lambda: now[0])
    scope = {"method": "GET", "path": "/", "client": ("10.0.0.1", 1)}
    for _ in range(REFUSALS + 7):
        audit.refused(scope, {}, 401)
    assert len(lines(caplog)) == REFUSALS
    now[0] += 1.0
    audit.refused(scope, {}, 401)
    assert lines(caplog)[-1]["untold"] == 7


def test_what_a_caller_says_of_itself_is_one_line_and_short() -> None:
    told = record({"method": "GET", "path": "/" + "a" * 9999, "client": None}, {"user-agent": "x\n\x1b[2J" * 99}, 401)
    assert "\n" not in told
    assert "\x1b" not in told
    assert len(told) < 2000
