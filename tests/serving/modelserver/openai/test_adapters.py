"""Adapters that come and go while a server of vLLM has requests. vLLM is a stub with its routes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.engines.base.llm_arguments import ADAPTERS_FILE, ADAPTERS_VARIABLE
from serving.storage.base.digest import of_folder
from serving.storage.base.disk import digest_files
from tests.serving.engines.vllm.test_folder import adapter
from tests.serving.modelserver.client import Answer
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import vllm_stub
from tests.support.small_llama import write
from tests.support.wait import eventually

CHAT = "/openai/v1/chat/completions"


class Platform:
    """The folder of adapters, and the list as the platform writes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lists = 0
        (folder / "list").mkdir()

    @property
    def mounted(self) -> str:
        """The folder of the list."""
        return str(self._folder / "list")

    def make(self, name: str, **changes: Any) -> dict[str, str]:
        """Make the files of an adapter, and return its entry."""
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        adapter(folder, **changes)
        return {"name": name.partition("-")[0], "uri": folder.as_uri(), "digest": self.digest(name)}

    def digest(self, name: str) -> str:
        """Return the digest of an adapter's files."""
        return of_folder(digest_files(self._folder / name, name))

    def break_weights(self, name: str) -> dict[str, str]:
        """Make an adapter that vLLM cannot load."""
        entry = self.make(name)
        (self._folder / name / "broken").touch()
        return {**entry, "digest": self.digest(name)}

    def want(self, *entries: dict[str, str]) -> str:
        """Replace the list, and return its id."""
        self._lists += 1
        made = {"default": {"id": str(self._lists), "adapters": entries}, "revisions": {}}
        new = self._folder / "new"
        new.write_text(json.dumps(made))
        new.replace(self._folder / "list" / ADAPTERS_FILE)
        return str(self._lists)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    (tmp_path / "adapters").mkdir()
    return Platform((tmp_path / "adapters").resolve())


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
def start(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: Platform) -> Start:
    """Start a server that follows the list."""
    vllm_stub.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr("serving.modelserver.openai.adapters.PERIOD", 0.02)
    folder = write(tmp_path.resolve() / "llama")

    async def started(*options: str) -> Running:
        environ = {ADAPTERS_VARIABLE: platform.mounted}
        return await serve(b"", "--storage-uri", folder.as_uri(), "--format", "vllm", *options, **environ)

    return started


async def chat(server: Running, model: str = NAME, **wish: Any) -> Answer:
    messages = [{"role": "user", "content": "hi"}]
    return await server.post({"model": model, "messages": messages, "user": json.dumps(wish)}, CHAT)


async def names(server: Running) -> set[str]:
    return {one["id"] for one in (await server.get("/v1/models")).json["data"]}


async def done(server: Running, wanted: str) -> dict[str, str]:
    """Wait until the server has done what the list wants, and return the faults."""
    found: dict[str, Any] = {}

    async def reported() -> bool:
        found.update((await server.stats())["adapters"])
        return bool(found["list"] == wanted)

    await eventually(reported)
    return dict(found["faults"])


async def test_the_adapters_of_the_list_are_served_once_the_server_is_ready(start: Start, platform: Platform) -> None:
    platform.want(platform.make("legal"))
    server = await start()
    assert (await chat(server, "m:legal")).status == 200
    assert await names(server) == {"m", "m:legal"}
    assert (await server.stats())["adapters"] == {"list": "1", "faults": {}}


async def test_an_adapter_comes_and_goes_while_requests_run(start: Start, platform: Platform, tmp_path: Path) -> None:
    platform.want()
    server = await start()
    assert (await chat(server, "m:legal")).status == 404
    assert await done(server, platform.want(platform.make("legal"))) == {}
    (held := tmp_path / "held").touch()
    running = [asyncio.create_task(chat(server, model, **{"while": str(held)})) for model in ("m:legal", "m")]

    async def both_run() -> bool:
        return bool((await server.stats())["active"] == 2)

    await eventually(both_run)
    assert await done(server, platform.want()) == {}
    refused = await chat(server, "m:legal")
    assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")
    assert await names(server) == {"m"}
    held.unlink()
    assert [(await one).status for one in running] == [200, 200]
    assert await done(server, platform.want(platform.make("legal"))) == {}
    assert (await chat(server, "m:legal")).status == 200


async def test_other_files_of_an_adapter_get_another_name_in_vllm(
    start: Start, platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    """Its prefix cache knows adapters by their names, so the same name would answer from the former files."""
    caplog.set_level("INFO")
    platform.want(platform.make("legal"))
    server = await start()
    new = platform.make("legal-again", r=4)
    await done(server, platform.want(new))
    assert (await chat(server, "m:legal")).status == 200
    assert re.findall(r"adapter: name '(.*)', path", caplog.text) == ["m:legal", f"m:legal@{new['digest'][7:19]}"]
    moved = platform.make("legal", r=4)
    assert await done(server, platform.want({**moved, "digest": new["digest"]})) == {}
    assert (await chat(server, "m:legal")).status == 200


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"digest": "sha256:" + "0" * 64}, "cannot be fetched: .* was expected"),
        ({"uri": "file:///missing"}, "cannot be fetched: "),
    ],
)
async def test_a_bad_adapter_harms_nothing_else(
    start: Start, platform: Platform, change: dict[str, str], fault: str
) -> None:
    good, bad = platform.make("good"), {**platform.make("bad"), **change}
    platform.want(bad, good)
    server = await start()
    found = (await server.stats())["adapters"]["faults"]
    assert found.keys() == {"bad"}
    assert re.match(fault, found["bad"])
    assert [(await chat(server, model)).status for model in ("m", "m:good", "m:bad")] == [200, 200, 404]


async def test_the_former_files_are_served_while_new_ones_cannot_be_loaded(start: Start, platform: Platform) -> None:
    platform.want(platform.make("legal"))
    server = await start()
    faults = await done(server, platform.want(platform.break_weights("legal-again")))
    assert "size mismatch" in faults["legal"]
    assert (await chat(server, "m:legal")).status == 200
    assert await done(server, platform.want(platform.make("legal"))) == {}


async def test_files_that_could_not_be_loaded_take_no_name(
    start: Start, platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    platform.want(platform.break_weights("legal"))
    server = await start()
    assert await done(server, platform.want(platform.make("legal-again", r=4))) == {}
    assert "adapter: name 'm:legal', path" in caplog.text


async def test_files_that_changed_at_their_address_get_another_name(
    start: Start, platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    entry = platform.make("legal")
    del entry["digest"]
    platform.want(entry)
    server = await start()
    assert await done(server, platform.want()) == {}
    platform.make("legal", r=4)
    assert await done(server, platform.want(entry)) == {}
    first, second = re.findall(r"adapter: name '(.*)', path", caplog.text)
    assert first == "m:legal" and re.fullmatch(r"m:legal@[0-9a-f]{12}", second)


async def test_a_rank_beyond_the_room_is_reported(start: Start, platform: Platform) -> None:
    platform.want()
    server = await start()
    faults = await done(server, platform.want(platform.make("large", r=64)))
    assert "rank is 64" in faults["large"] and "`knodel restart m`" in faults["large"]


async def test_an_invalid_list_changes_nothing(
    start: Start, platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    platform.want(platform.make("legal"))
    server = await start()
    (Path(platform.mounted) / ADAPTERS_FILE).write_text("{")
    await eventually(lambda: "the list of adapters cannot be read" in caplog.text)
    assert (await chat(server, "m:legal")).status == 200


@pytest.mark.parametrize("verb", ["load", "unload"])
async def test_callers_do_not_reach_the_routes(start: Start, platform: Platform, verb: str) -> None:
    platform.want(platform.make("legal"))
    server = await start()
    body = {"model": NAME, "lora_name": "m:legal", "lora_path": "/tmp"}
    for prefix in ("", "/openai"):
        assert (await server.post(body, f"{prefix}/v1/{verb}_lora_adapter")).status == 404
    assert await names(server) == {"m", "m:legal"}
