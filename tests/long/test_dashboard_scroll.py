"""A list of 1000 models in a browser: it scrolls without long frames, and one change sends one row."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect, sync_playwright

from clusters.base.clock import SystemClock
from clusters.base.objects import MODEL
from clusters.runtime.informer import Informers
from serving.control_api.server import listen, make_server
from serving.dashboard.app import Dashboard
from serving.dashboard.history import History
from serving.dashboard.objects import Objects
from serving.dashboard.sampler import Sampler
from serving.dashboard.sessions import Sessions
from serving.platform.dashboard_main import OnlyDashboard
from tests.serving.dashboard.conftest import FixedTools, Rights
from tests.serving.dashboard.test_pages import model
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work

PROGRAM: Final = shutil.which("chromium")
pytestmark = [pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium"),
              pytest.mark.timeout(900)]  # fmt: skip
COUNT: Final = 1000
FRAMES: Final = 60
SCROLL: Final = """
async (frames) => {
  const middle = document.documentElement.scrollHeight / 2;
  for (let index = 0; index < frames; index += 1) {
    scrollTo(0, middle + 100 * index);
    await new Promise(requestAnimationFrame);
  }
}
"""
"""Scroll from the middle of the page as a wheel does, 100 px for each frame."""
WITHIN: Final = 200_000.0  # ms, on a busy machine


class Host:
    """A dashboard with COUNT models, in a thread with a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.link = ""
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Host:
        self._thread.start()
        assert self._ready.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def rename(self, name: str, version: str) -> None:
        """Change the label of a version."""
        names = {"name": name, "namespace": "default"}
        status = {"traffic": [{"revision": f"{name}-00001", "version": version, "percent": 100}]}
        changed = {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": names, "status": status}
        applying = self._cluster.apply(MODEL, changed, manager="test", force=True, subresource="status")
        asyncio.run_coroutine_threadsafe(applying, self._loop).result(30)

    async def _serve(self) -> None:
        clock = SystemClock()
        async with embedded_cluster(self._folder / "cluster.db") as self._cluster:
            await asyncio.gather(*(self._add(f"model-{index:04}") for index in range(COUNT)))
            informers, history, sessions = Informers(self._cluster), History(), Sessions(clock)
            objects = Objects(informers, history, clock)
            sampler = Sampler((), lambda: pytest.fail("not sampled"), history, clock)
            app = Dashboard(objects, sampler, sessions, Rights(), FixedTools(), clock, {"127.0.0.1"})
            listener = listen("127.0.0.1", 0, "a port")
            server = make_server(OnlyDashboard(app))
            async with at_work(informers.run()):
                await informers.synced()
                serving = asyncio.create_task(server.serve(listener))
                address = f"http://127.0.0.1:{listener.getsockname()[1]}/dashboard"
                self.link = f"{address}/login?link={sessions.make_link()}"
                self._ready.set()
                await self._stop.wait()
                server.stop()
                await serving
                listener.close()

    async def _add(self, name: str) -> None:
        made = model(name)
        status = made.pop("status")
        await self._cluster.create(MODEL, made, manager="test")
        changed = {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": made["metadata"], "status": status}
        await self._cluster.apply(MODEL, changed, manager="test", subresource="status")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The dashboard."""
    with Host(tmp_path_factory.mktemp("scroll")) as made:
        yield made


def test_a_thousand_models_scroll_and_one_change_sends_one_row(host: Host) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WITHIN)
        expect.set_options(timeout=WITHIN)
        page.goto(host.link)
        expect(page.locator("#models > tr")).to_have_count(COUNT)
        expect(page.locator("#connection")).to_have_text("live", timeout=WITHIN)
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            """Return the CPU seconds of the page's main thread, which do not depend on how busy the machine is."""
            found = metrics.send("Performance.getMetrics")["metrics"]
            return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

        print(f"opening took {busy():.2f} s of CPU")
        for width in (1280, 400):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(2000)
            before = busy()
            page.evaluate(SCROLL, FRAMES)
            frame = 1000 * (busy() - before) / FRAMES
            print(f"{width} px: a frame takes {frame:.1f} ms of CPU")
            assert frame < 70  # forced frames, painted without a GPU; a wheel scrolls beside the main thread
        page.evaluate("""() => {
          window.changed = new Set();
          const watch = (list) => list.forEach((one) => one.addedNodes.forEach((node) => window.changed.add(node.id)));
          new MutationObserver(watch).observe(document.getElementById("models"), {childList: true});
        }""")
        host.rename("model-0500", "renamed")
        expect(page.locator("[id='m.default.model-0500']")).to_contain_text("renamed", timeout=WITHIN)
        assert page.evaluate("[...window.changed]") == ["m.default.model-0500"]
        browser.close()
