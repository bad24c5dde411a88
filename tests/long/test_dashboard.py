"""The dashboard of a live platform in a browser: each view and action, wide and narrow, dark and light, and attacks.

It needs Debian's package `chromium`. `.ci/run` installs it. Screenshots are in `build/dashboard`.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body

PROGRAM: Final = shutil.which("chromium")
pytestmark = [pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
              pytest.mark.timeout(600)]  # fmt: skip

SHOTS: Final = Path(__file__).parents[2] / "build" / "dashboard"
WIDTHS: Final = (400, 1280, 2560)
WITHIN: Final = 45_000.0  # ms, on a busy machine
EVIL: Final = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
NO_PROMETHEUS: Final = "http://127.0.0.1:9"
OBJECTS: Final = """
apiVersion: knodel.dev/v1alpha1
kind: WarmPool
metadata: {name: small}
spec: {size: 1}
---
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: iris}
spec:
  storageUri: file://PATH
  version: "1"
  minReplicas: 1
  rollout: {steps: [20, 100], stepDuration: 10m, judge: {interval: 2s}}
---
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: plain}
spec: {storageUri: file://PATH, version: EVIL, minReplicas: 1, maxReplicas: 1}
"""
VIEWS: Final = ("/", "/models/default/iris", "/models/default/iris?window=day", "/models/default/plain",
                "/models/default/iris/logs", "/pools", "/events", "/models/default/iris/try",
                "/models/default/iris/do/traffic", "/models/default/iris/do/rollback", "/doctor", "/audit")  # fmt: skip


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A platform with a pool, an event, a rollout under traffic, and a version with a hostile label."""
    with machine(tmp_path_factory.mktemp("platform")) as made:
        made.environment |= {"KNODEL_DASHBOARD_PROMETHEUS_URL": NO_PROMETHEUS}
        made.up()
        text = OBJECTS.replace("PATH", made.artifact("double")).replace("EVIL", json.dumps(EVIL))
        made.run("deploy", "-f", "-", stdin=text)
        made.run("events", "allow", "/train", "--models", "iris", "--storage-prefix", f"file://{made.folder}/")
        sent = ("events", "send", "iris", "--uri", f"file://{made.artifact('triple')}", "--version", "2")
        made.run(*sent, "--id", "train-42", "--metric", "accuracy=0.97")
        made.run("deploy", "plain", "--uri", made.artifact("triple"), "--version", "3")
        ending = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_keep_asking, made, ending)
            yield made
            ending.set()


def _keep_asking(platform: Machine, ending: threading.Event) -> None:
    """Send some requests a second through the gateway; a command for each would keep the machine busy."""
    path, body = "/namespaces/default/models/iris/v2/models/iris/infer", json.dumps(infer_body(1.0))
    while not ending.wait(0.3):
        connection = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=30)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            connection.getresponse().read()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A browser with a session of its own."""

    def __init__(self, platform: Machine, browser: Browser, **settings: Any) -> None:
        self.context: BrowserContext = browser.new_context(**settings)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WITHIN)
        self.problems: list[str] = []
        self.page.on("console", lambda one: self.problems.append(one.text) if one.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.address = f"http://127.0.0.1:{platform.control}/dashboard"
        self.page.goto(platform.run("dashboard", "--no-browser").strip())
        expect(self.page.locator("h1")).to_have_text("Models", timeout=WITHIN)

    def show(self, path: str) -> Page:
        """Open a view."""
        self.page.goto(self.address + path)
        return self.page

    def confirm(self, path: str) -> None:
        """Open the confirmation of an action, and confirm it."""
        self.show(path).click("#confirm")
        expect(self.page.locator(".notice")).to_be_visible(timeout=WITHIN)


@pytest.fixture
def visitor(platform: Machine, chromium: Browser) -> Iterator[Visitor]:
    """A person who is logged in."""
    made = Visitor(platform, chromium)
    yield made
    made.context.close()


def becomes(read: Callable[[], Any], wanted: Any, within: float = WITHIN / 1000) -> None:
    """Wait until a value has come."""
    deadline = time.monotonic() + within
    while (found := read()) != wanted:
        assert time.monotonic() < deadline, f"{found!r} instead of {wanted!r}"
        time.sleep(0.2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_and_is_accessible(platform: Machine, chromium: Browser, scheme: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    visitor = Visitor(platform, chromium, color_scheme=scheme)
    serious: list[str] = []
    for path in VIEWS:
        for width in WIDTHS:
            visitor.page.set_viewport_size({"width": width, "height": 900 if width < 2000 else 1300})
            page = visitor.show(path)
            if path.startswith("/models/default/iris") and path.count("/") == 3:
                page.wait_for_selector(".uplot")
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0, f"{path} is {over} px too wide at {width} px"
            name = path.strip("/").replace("/", "-") or "index"
            page.screenshot(path=SHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
            found = Axe().run(page).response["violations"] if width < 2000 else ()
            serious += [
                f"{path} at {width} px, {scheme}: {one['id']}: {one['nodes'][0]['html'][:200]}"
                for one in found if one["impact"] in ("serious", "critical")
            ]  # fmt: skip
    assert not serious, "\n".join(serious)
    assert not visitor.problems
    visitor.context.close()


def test_the_list_changes_without_a_reload(platform: Machine, visitor: Visitor) -> None:
    page = visitor.show("/")
    expect(page.locator("#connection")).to_have_text("live", timeout=WITHIN)
    page.evaluate("window.same = true")
    platform.run("deploy", "late", "--uri", platform.artifact("double"), "--version", "first")
    row = page.locator("[id='m.default.late']")
    expect(row).to_contain_text("first", timeout=WITHIN)
    expect(row.locator(".state")).to_have_text("Ready", timeout=WITHIN)
    platform.run("delete", "late")
    expect(row).to_have_count(0, timeout=WITHIN)
    traffic = page.locator("[id='m.default.iris'] [data-label='Requests/s']")
    expect(traffic).not_to_have_text("–", timeout=WITHIN)
    assert page.evaluate("window.same")


def test_the_filter_hides_rows(visitor: Visitor) -> None:
    page = visitor.show("/")
    page.fill("#q", "pla")
    expect(page.locator("[id='m.default.plain']")).to_be_visible()
    expect(page.locator("[id='m.default.iris']")).to_be_hidden()


def test_a_model_shows_its_traffic_and_its_way_from_the_training(visitor: Visitor) -> None:
    page = visitor.show("/models/default/iris")
    expect(page.locator("#trace .flow li")).not_to_have_count(0)
    expect(page.locator("#starts svg")).not_to_have_count(0)
    expect(page.locator("#replicas tbody tr")).not_to_have_count(0)
    page.locator("#figures summary").click()
    expect(page.locator("#figures tbody tr")).not_to_have_count(0, timeout=WITHIN)
    assert page.locator("#figures").get_attribute("open") is not None  # still, after the parts were replaced


def test_the_last_day_without_its_prometheus_is_explained(visitor: Visitor) -> None:
    page = visitor.show("/models/default/iris?window=day")
    note = page.locator("#history-note")
    expect(note).to_contain_text(f"Prometheus at {NO_PROMETHEUS} has no history: the server did not answer")
    expect(note).to_contain_text("Check dashboard.prometheusUrl")
    expect(page.locator(".uplot")).to_have_count(4)
    page = visitor.show("/models/default/iris")
    page.wait_for_selector(".uplot")
    expect(page.locator("#history-note")).to_be_hidden()


def test_the_rollout_is_paused_resumed_and_aborted(platform: Machine, visitor: Visitor) -> None:
    def phase() -> str:
        return str((platform.model("iris")["status"].get("rollout") or {}).get("phase"))

    becomes(phase, "Progressing")
    page = visitor.show("/models/default/iris")
    page.click("#do-pause")
    expect(page.locator(".command")).to_have_text("knodel pause iris")
    page.click("#confirm")
    expect(page.locator(".notice")).to_have_text("Done: knodel pause iris", timeout=WITHIN)
    becomes(phase, "Paused")
    visitor.confirm("/models/default/iris/do/resume")
    becomes(phase, "Progressing")
    visitor.confirm("/models/default/iris/do/abort")
    becomes(phase, "RolledBack")
    visitor.confirm("/models/default/iris/do/promote")
    becomes(phase, "Promoted")


def test_the_traffic_is_split_promoted_and_rolled_back(platform: Machine, visitor: Visitor) -> None:
    def split() -> dict[str, int]:
        found = platform.model("plain")["status"]["traffic"]
        return {one["revision"]: one["percent"] for one in found if one.get("percent")}

    page = visitor.show("/models/default/plain/do/traffic")
    page.fill("input[name='percent.plain-00001']", "30")
    page.fill("input[name='percent.plain-00002']", "80")
    page.click("text=Review")
    expect(page.locator("[role=alert]")).to_contain_text("add up to 110")
    page.fill("input[name='percent.plain-00002']", "70")
    page.click("text=Review")
    expect(page.locator(".command")).to_contain_text("plain-00001=30")
    page.click("#confirm")
    expect(page.locator(".notice")).to_be_visible(timeout=WITHIN)
    assert split() == {"plain-00001": 30, "plain-00002": 70}
    visitor.confirm("/models/default/plain/do/promote")
    assert split() == {"plain-00002": 100}
    visitor.confirm("/models/default/plain/do/rollback")
    assert split() == {"plain-00001": 100}


def test_an_action_without_effect_is_explained(visitor: Visitor) -> None:
    page = visitor.show("/models/default/plain/do/pause")
    page.click("#confirm")
    expect(page.locator("[role=alert]")).to_contain_text("no running rollout")


def test_an_event_is_replayed(platform: Machine, visitor: Visitor) -> None:
    page = visitor.show("/events")
    page.click("text=train-42 >> nth=0")
    page.click("summary.button")
    page.click("#replay")
    expect(page.locator(".notice")).to_contain_text("knodel events replay train-42", timeout=WITHIN)
    expect(page.locator("#event .flow li")).not_to_have_count(0)


def test_a_model_is_tried_with_its_example(visitor: Visitor) -> None:
    page = visitor.show("/models/default/iris/try")
    page.click("#example")
    assert "inputs" in page.input_value("#body")
    page.click("text=Send")
    expect(page.locator("#response")).to_contain_text("outputs", timeout=WITHIN)


def test_doctor_runs(visitor: Visitor) -> None:
    page = visitor.show("/doctor")
    page.click("#examine")
    expect(page.locator(".findings li")).not_to_have_count(0, timeout=WITHIN)


def test_the_audit_has_what_was_done_here(visitor: Visitor) -> None:
    page = visitor.show("/audit")
    expect(page.locator(".audit")).to_contain_text("logged in")
    expect(page.locator(".audit")).to_contain_text("PATCH")


def test_a_hostile_label_is_text(visitor: Visitor) -> None:
    for path in VIEWS:
        page = visitor.show(path)
        assert page.evaluate("window.hacked") is None, path
    expect(visitor.show("/models/default/plain").locator("#versions")).to_contain_text(EVIL)
    assert not [one for one in visitor.problems if "Content Security Policy" in one]


def test_a_page_of_another_port_cannot_act(platform: Machine, visitor: Visitor) -> None:
    """The other port is the same site for the browser, so the cookie is sent: the Origin and the field decide."""
    target = f"{visitor.address}/models/default/iris/do/rollback"
    form = f"<form method=post action='{target}'><input name=csrf value=x></form>"
    form += "<script>document.forms[0].submit()</script>"
    before = platform.model("iris")["metadata"]["generation"]
    with _site(form) as address, visitor.page.expect_response(target) as response:
        visitor.page.goto(address)
    assert response.value.status == 403
    assert platform.model("iris")["metadata"]["generation"] == before
    visitor.page.wait_for_load_state()
    framed = f"<iframe src='{visitor.address}/' width=800 height=600></iframe>"
    with _site(framed) as address:
        visitor.page.goto(address)
        assert "Models" not in visitor.page.frames[-1].locator("body").inner_text()


def test_sessions_are_independent(platform: Machine, chromium: Browser, visitor: Visitor) -> None:
    stranger = chromium.new_context()
    page = stranger.new_page()
    assert (page.goto(f"{visitor.address}/") or pytest.fail()).status == 401
    other = Visitor(platform, chromium)
    (cookie,) = other.context.cookies()
    other.page.click("text=Log out")
    expect(other.page.locator("h1")).to_have_text("Log in")
    stranger.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": visitor.address}])
    assert (page.goto(f"{visitor.address}/") or pytest.fail()).status == 401
    assert visitor.show("/").locator("h1").inner_text() == "Models"
    stranger.close()
    other.context.close()


def test_the_pages_work_without_scripts(platform: Machine, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(platform.run("dashboard", "--no-browser").strip())
    page.click("text=iris >> nth=0")
    expect(page.locator("h1")).to_contain_text("iris")
    context.close()


class _site:
    """A page of another origin on this machine."""

    def __init__(self, html: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(html.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
