"""Test the simulated cluster: binding, starts, evictions and controllers, with times calculated by hand."""

from __future__ import annotations

from loadtests.gpu.cluster import Cluster, Phase, Workload


def cluster(*nodes: int, binds: float = 10.0) -> Cluster:
    return Cluster(nodes, start=(4.0, 4.0), binds=binds)


def test_pods_are_bound_one_after_another_on_the_node_with_the_most_free_units_and_start() -> None:
    found = cluster(4, 8)
    server = found.add(Workload("server", units=2))
    found.scale(server, 4)
    found.run_until(0.05)
    assert (server.bound, server.running) == (1, 0)
    found.run_until(0.35)
    assert [node.free for node in found.nodes] == [2, 2]
    found.run_until(4.15)
    assert server.running == 2
    assert found.requested() == 4


def test_a_pod_evicts_as_few_pods_of_lower_priority_as_needed_and_starts_when_they_have_ended() -> None:
    found = cluster(5, 5)
    trainer = found.add(Workload("trainer", units=5, priority=-1, end=3.0))
    found.scale(trainer, 2)
    found.run_until(10.0)
    server = found.add(Workload("server", units=2, priority=1))
    found.scale(server, 2)
    found.run_until(12.9)
    assert (trainer.running, trainer.count(Phase.ENDING), trainer.count(Phase.PENDING)) == (1, 1, 1)
    assert found.requested() == 10  # a Pod that ends is in phase Running
    found.run_until(17.3)
    assert server.running == 2
    assert trainer.running == 1


def test_room_made_for_a_pod_is_not_given_to_others() -> None:
    found = cluster(5)
    trainer = found.add(Workload("trainer", units=5, priority=-1, end=3.0))
    found.scale(trainer, 1)
    found.run_until(10.0)
    server = found.add(Workload("server", units=3, priority=1))
    found.scale(server, 1)
    found.run_until(10.5)
    small = found.add(Workload("small", units=3, priority=-1))
    found.scale(small, 1)
    found.run_until(30.0)
    assert (server.running, small.bound) == (1, 0)


def test_pods_that_may_not_evict_wait() -> None:
    found = cluster(5)
    trainer = found.add(Workload("trainer", units=5, priority=-1))
    found.scale(trainer, 1)
    found.run_until(10.0)
    master = found.add(Workload("master", units=1, priority=0, evicts=False))
    found.scale(master, 1)
    found.run_until(30.0)
    assert (trainer.running, master.bound) == (1, 0)
    assert not found.is_waiting_above(-1)


def test_a_controller_deletes_waiting_pods_first_then_the_youngest() -> None:
    found = cluster(3)
    trainer = found.add(Workload("trainer", units=1, end=2.0))
    found.scale(trainer, 5)
    found.run_until(10.0)
    first = next(iter(trainer.pods))
    found.scale(trainer, 1)
    assert trainer.count(Phase.PENDING) == 0
    found.run_until(12.0)
    assert list(trainer.pods) == [first]
