"""The pages: what they show of objects, and that no value of an object becomes code."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest

from clusters.base.objects import EVENT_SOURCE, MODEL, MODEL_EVENT, POD, WARM_POOL, Object
from serving.dashboard.audit import audit_fields
from serving.dashboard.history import Amount, SeriesName
from serving.dashboard.tools import Findings, GpuReading
from tests.serving.dashboard.conftest import Desk, csrf_of, form_headers

EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}"
AT = "2026-01-01T00:00:00Z"


def model(name: str = "iris", **status: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageUri": "https://example.com/iris.onnx", "modelFormat": "onnx",
                 "rollout": {"steps": [10, 100]}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": AT}],
            "traffic": [{"revision": f"{name}-00001", "version": "v1", "percent": 90},
                        {"revision": f"{name}-00002", "version": "v2", "percent": 10, "tag": "candidate"}],
            "replicas": {"ready": 1, "desired": 2, "starting": 1},
            "history": [{"revision": f"{name}-0000{number}", "version": f"v{number}", "at": AT,
                         "digest": "sha256:" + "a" * 64, "storageUri": "https://example.com", "cause": {"by": "user"},
                         "outcome": "serving"} for number in (1, 2)],
            **status,
        },
    }  # fmt: skip


def rollout(**more: Any) -> dict[str, Any]:
    numbers = {"stable.requests": 900.0, "candidate.requests": 100.0, "stable.errors": 0.0, "candidate.errors": 0.01,
               "errors.lower": -0.01, "errors.upper": 0.03, "errors.harm": 0.02}  # fmt: skip
    verdict = {"decision": "wait", "at": AT, "reasons": ["too few requests"], "numbers": numbers}
    return {"phase": "Progressing", "candidate": "iris-00002", "stable": "iris-00001", "startedAt": AT, "since": AT,
            "seenAt": AT, "step": 0, "percent": 10, "verdict": verdict, "reasons": ["10 % in force"],
            **more}  # fmt: skip


def hostile_model() -> Object:
    made = model()
    status = made["status"]
    made["spec"]["modelFormat"] = EVIL
    status["url"] = EVIL
    status["conditions"] = [{"type": "Ready", "status": "False", "reason": EVIL, "message": EVIL}]
    status["traffic"] = [{"revision": EVIL, "version": EVIL, "percent": 100, "tag": EVIL}]
    status["history"][0] |= {"version": EVIL, "cause": {"by": "event", "id": EVIL, "source": EVIL}, "digest": EVIL}
    status["rollout"] = rollout(candidate=EVIL, stable=EVIL, reasons=[EVIL], startedAt=AT)
    status["rollout"]["verdict"]["reasons"] = [EVIL]
    status["starts"] = [{"revision": EVIL, "at": EVIL, "pod": EVIL, "kind": EVIL, "milliseconds": 5,
                         "steps": [{"name": EVIL, "milliseconds": 3}], "server": {EVIL: 3}}]  # fmt: skip
    status["decisions"] = [{"at": EVIL, "revision": EVIL, "from": EVIL, "to": EVIL, "reasons": [{"message": EVIL}]}]
    return made


def hostile_pod() -> Object:
    return {
        "metadata": {"name": "iris-1", "namespace": "default", "labels": {"knodel.dev/model": "iris"}},
        "spec": {"containers": [{"name": "server"}], "nodeName": EVIL},
        "status": {"phase": EVIL, "containerStatuses": [
            {"name": "server", "state": {"waiting": {"reason": EVIL, "message": EVIL}}}]},
    }  # fmt: skip


def event(name: str, phase: str = "Failed", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"knodel.dev/model": "iris"}},
        "spec": {"id": EVIL, "source": EVIL, "type": EVIL, "receivedAt": AT, "time": AT, "eventSource": EVIL,
                 "model": {"namespace": "default", "name": "iris"}, "change": {"storageUri": EVIL},
                 "data": {EVIL: EVIL}, **spec},
        "status": {"phase": phase, "at": AT, "message": EVIL},
    }  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page with their attributes, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))


def check_harmless(page: str) -> None:
    """No value has become an element, an attribute, or an expression of a template."""
    assert "{{7*7}}" in page or "7*7" not in page
    for tag, attributes in Elements(page).found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        if tag in ("script", "img"):
            assert str(attributes.get("src")).startswith("/dashboard/static/"), attributes
        for name in ("href", "action"):
            assert str(attributes.get(name) or "/").startswith(("/dashboard", "#", "/")), attributes


async def test_no_value_of_an_object_becomes_code(desk: Desk) -> None:
    await desk.add(MODEL, hostile_model())
    await desk.add(POD, hostile_pod())
    await desk.add(MODEL_EVENT, event("e-1"))
    await desk.add(EVENT_SOURCE, {"metadata": {"name": "training", "namespace": "default"}, "spec": {}})
    pool = {"metadata": {"name": "p", "namespace": "default"}, "status": {"reasons": [EVIL]},
            "spec": {"template": {"modelFormat": EVIL}, "size": EVIL}}  # fmt: skip
    await desk.add(WARM_POOL, pool)
    desk.tools.lines = [(EVIL, EVIL)]
    audited = json.dumps({"method": EVIL, "path": EVIL, "status": 403})
    desk.tools.records = [{"at": AT, **audit_fields(one)} for one in (f"audit {audited}", f"dashboard: {EVIL}")]
    desk.tools.findings = Findings(AT, [{"check": EVIL, "ok": False, "message": EVIL, "remedy": EVIL}])
    desk.tools.gpu = GpuReading(
        [{"index": 0, "type": EVIL, "memory": 1, "used": 1, "holders": [{"name": EVIL, "memory": 1}]}]
    )
    desk.tools.text = EVIL
    browser = await desk.logged_in()
    shown = 0
    for path in ("/", "/models/default/iris", "/models/default/iris/logs", "/models/default/iris/do/traffic", "/pools",
                 "/models/default/iris/do/rollback", "/events", "/events/default/e-1", "/audit", "/doctor",
                 f"/?q={EVIL}", f"/models/default/{EVIL}", f"/events?phase={EVIL[:20]}"):  # fmt: skip
        answer = await browser.get(f"/dashboard{path}")
        assert answer.status_code in (200, 404, 422), (path, answer.text)
        check_harmless(answer.text)
        shown += answer.text.count("&lt;script&gt;alert(1)")
    assert shown > 30  # so the values are there, escaped
    csrf = csrf_of((await browser.get("/dashboard/")).text)
    tried = await browser.post(
        "/dashboard/models/default/iris/try", data={"csrf": csrf, "body": EVIL}, headers=form_headers()
    )
    assert "&lt;script&gt;" in tried.text
    check_harmless(tried.text)


async def test_the_parts_of_a_stream_are_as_harmless_as_the_page(desk: Desk) -> None:
    from serving.dashboard.live import stream
    from serving.dashboard.pages import ModelPage
    from serving.dashboard.render import Renderer

    await desk.add(MODEL, hostile_model())
    page = ModelPage(desk.objects, Renderer(), "default", "iris")
    async for text in stream(page, lambda: (1, 1), lambda: True, desk.clock):
        if text.startswith("event: parts"):
            for html in json.loads(text.partition("data: ")[2])["html"].values():
                check_harmless(html)
            return


async def test_the_list_shows_state_versions_traffic_and_cost(desk: Desk) -> None:
    await desk.add(MODEL, model(rollout=rollout()))
    await desk.add(MODEL, model("idle", replicas={"ready": 0, "desired": 0}))
    failed = [{"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": "no such file"}]
    await desk.add(MODEL, model("broken", conditions=failed))
    now = desk.objects.now().timestamp()
    desk.history.add(SeriesName("default", "iris"), Amount(100, 5, Counter({-80: 95})), 10.0, 1, now)
    text = (await (await desk.logged_in()).get("/dashboard/")).text
    rows = dict(re.findall(r'<tr role="row" id="m\.default\.(\w+)">(.*?)</tr>', text, re.DOTALL))
    assert list(rows) == ["broken", "idle", "iris"]
    assert "RevisionFailed" in rows["broken"] and "Failed" in rows["broken"]
    assert ">Idle<" in rows["idle"]
    for part in (
        "v1 <b>90 %</b>",
        "v2 <b>10 %</b>",
        ">10<",
        "0.98",
        "5\N{NO-BREAK SPACE}%",
        "Progressing, step 1 of 2",
    ):
        assert part in rows["iris"], part
    assert 'x="90" width="10"' in rows["iris"]
    assert "1 failed" in text


async def test_a_model_shows_the_judges_numbers_and_bounds(desk: Desk) -> None:
    await desk.add(MODEL, model(rollout=rollout()))
    text = (await (await desk.logged_in()).get("/dashboard/models/default/iris")).text
    assert "errors: from -1 to +3 points, limit +2: undecided" in text
    assert "too few requests" in text
    for name in ("pause", "abort", "promote", "traffic", "rollback"):
        assert f'id="do-{name}"' in text
    assert 'id="do-resume"' not in text


async def test_versions_with_the_same_label_have_their_revisions_names(desk: Desk) -> None:
    same = [{"revision": f"iris-0000{number}", "version": "v1", "percent": 50} for number in (1, 2)]
    await desk.add(MODEL, model(traffic=same))
    text = (await (await desk.logged_in()).get("/dashboard/")).text
    assert "iris-00001 <b>50 %</b>" in text and "iris-00002 <b>50 %</b>" in text


async def test_an_event_shows_its_way_to_the_outcome(desk: Desk) -> None:
    await desk.add(MODEL, model(history=[{"revision": "iris-00002", "version": "v2", "at": AT, "digest": "",
                                          "storageUri": "", "outcome": "serving",
                                          "promotedAt": "2026-01-01T01:00:00Z",
                                          "cause": {"by": "event", "id": "train-42",
                                                    "source": "/train"}}]))  # fmt: skip
    made = event("e-2", "Applied", id="train-42", source="/train", type="done", eventSource="training")
    await desk.add(MODEL_EVENT, made)
    browser = await desk.logged_in()
    for path in ("/events/default/e-2", "/models/default/iris"):
        text = (await browser.get(f"/dashboard{path}")).text
        kinds = re.findall(r'<li class="k-(\w+)">', text)
        assert kinds == ["sent", "received", "applied", "revision", "promoted"], path


async def test_dead_letters_are_a_view_of_their_own(desk: Desk) -> None:
    await desk.add(MODEL_EVENT, event("e-1", "Failed", id="bad"))
    await desk.add(MODEL_EVENT, event("e-2", "Applied", id="good"))
    text = (await (await desk.logged_in()).get("/dashboard/events?phase=Failed")).text
    assert ">bad<" in text and ">good<" not in text
    assert "Dead letters (1)" in text


@pytest.mark.parametrize(
    "path", ["/models/default/none", "/events/default/none", "/nothing", "/models/default/none/logs"]
)
async def test_what_does_not_exist_is_a_page_with_404(desk: Desk, path: str) -> None:
    answer = await (await desk.logged_in()).get(f"/dashboard{path}")
    assert answer.status_code == 404
    assert "Not found" in answer.text


async def test_a_session_with_namespaces_sees_only_those(desk: Desk) -> None:
    await desk.add(MODEL, model())
    browser = await desk.logged_in()
    session = next(iter(desk.sessions._sessions.values()))
    session.namespaces = frozenset({"other"})
    assert "m.default.iris" not in (await browser.get("/dashboard/")).text
    for path in ("", "/series", "/logs", "/live", "/do/promote"):
        assert (await browser.get(f"/dashboard/models/default/iris{path}")).status_code == 404
