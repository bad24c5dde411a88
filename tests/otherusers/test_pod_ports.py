"""Another user of the machine tries to listen on the ports of Pods."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from clusters.embedded.kubelet.node import KubeletSettings
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.net.endpoints import real_ports
from tests.clusters.kubelet.nodes import Nodes, ended, get, make_pod, process_of, until
from tests.otherusers.users import ATTEMPTS, HOST, Attacker
from tests.support.wait import eventually


@pytest.mark.parametrize(("host", "options"), ATTEMPTS, ids=str)
def test_who_bound_a_port_before_it_was_given_out_cannot_listen_on_it(
    attacker: Attacker, host: str, options: list[str]
) -> None:
    attacker.do("bind", host=host, port=19_000, options=options)

    with contextlib.closing(PortAllocator(HOST, first=19_000, last=19_001, start=19_000)) as ports:
        port = ports.allocate([8080])["8080"]
        assert port == 19_001 or attacker.is_refused("listen", port=port)
        with ports.listening([port]):
            assert port == 19_001 or attacker.is_refused("listen", port=port)
        assert port == 19_001 or attacker.is_refused("listen", port=port)

    attacker.do("unbind")


def test_a_port_that_another_user_bound_is_guarded_by_the_next_kubelet_too(attacker: Attacker) -> None:
    attacker.do("bind", host=HOST, port=19_002, options=["SO_REUSEADDR"])
    with (
        contextlib.closing(PortAllocator(HOST, first=19_002, last=19_002)) as ports,
        contextlib.closing(PortAllocator(HOST)) as successor,
    ):
        ports.allocate([8080])
        with ports.listening([19_002]):
            ports.close()
            successor.join([19_002])

        assert attacker.is_refused("listen", port=19_002)
    attacker.do("unbind")


def test_a_port_is_guarded_before_its_server_listens_and_after_it_ended(attacker: Attacker) -> None:
    with contextlib.closing(PortAllocator(HOST, first=19_010, last=19_010)) as ports:
        ports.allocate([8080])
        assert not attacker.can_take(19_010)
        with ports.listening([19_010]):
            assert not attacker.can_take(19_010)
        assert not attacker.can_take(19_010)

    assert attacker.can_take(19_010)


async def test_nobody_else_can_listen_on_the_ports_of_a_pod_that_runs(nodes: Nodes, attacker: Attacker) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")

    taken = [port for port in real_ports(pod).values() if attacker.can_take(port)]

    assert taken == []
    assert await get(pod, "/") == f"{process_of(pod).pid} {nodes.state / 'pods' / pod['metadata']['uid'] / 'scratch'}"


async def test_nobody_else_can_listen_on_the_ports_of_a_pod_that_crashed(nodes: Nodes, attacker: Attacker) -> None:
    nodes.settings = KubeletSettings(first_backoff=60.0)
    await nodes.start()
    await nodes.create(make_pod("a", "--fail", "out of luck"))

    async def backing_off() -> bool:
        return "waiting" in (await nodes.container("a")).get("state", {}) and await nodes.restarts("a") == 2

    await until(backing_off)
    ports = real_ports(await nodes.pod("a"))

    assert len(ports) == 2
    assert [port for port in ports.values() if attacker.can_take(port)] == []


async def test_a_new_kubelet_guards_the_ports_of_the_processes_that_it_adopts(nodes: Nodes, attacker: Attacker) -> None:
    nodes.settings = KubeletSettings(first_backoff=60.0)
    await nodes.start()
    await nodes.create(make_pod("a"))
    before = await nodes.ready("a")
    await nodes.abandon()

    await nodes.start()
    os.kill(process_of(before).pid, signal.SIGSTOP)  # it can no longer accept, but it keeps its sockets
    assert [port for port in real_ports(before).values() if attacker.can_take(port)] == []
    os.kill(process_of(before).pid, signal.SIGKILL)
    await eventually(lambda: ended(process_of(before)))

    assert [port for port in real_ports(before).values() if attacker.can_take(port)] == []
    assert real_ports(await nodes.ready("a")) == real_ports(before)


async def test_a_pod_whose_port_another_user_took_while_no_kubelet_ran_gets_another(
    nodes: Nodes, attacker: Attacker
) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    before = await nodes.ready("a")
    await nodes.abandon()
    os.kill(process_of(before).pid, signal.SIGKILL)
    await eventually(lambda: ended(process_of(before)))
    stolen = real_ports(before)["8080"]
    attacker.do("bind", host=HOST, port=stolen, options=["SO_REUSEADDR"])
    attacker.do("listen", port=stolen)

    await nodes.start()

    async def moved() -> bool:
        return stolen not in real_ports(await nodes.pod("a")).values()

    await until(moved)
    after = await nodes.ready("a")
    attacker.do("unbind")
    assert (await get(after, "/")).startswith(str(process_of(after).pid))
