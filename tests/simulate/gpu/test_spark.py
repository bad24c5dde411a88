"""Test the sizes of Spark's queries with and without reservation."""

from __future__ import annotations

from loadtests.gpu.scenarios import volcano_reservation
from loadtests.gpu.spark import Query, drivers_first, make_queries, split


def test_a_driver_does_no_work_and_executors_work_once_they_have_started() -> None:
    query = Query("a", 0.0, 10.0, 6, 6, 3.0)
    query.resize(1, 0.0)
    query.advance(10.0, 1.0)
    assert query.work == 10.0
    query.resize(6, 10.0)
    query.advance(13.0, 1.0)
    assert query.work == 10.0
    query.advance(14.0, 1.0)
    query.advance(15.0, 1.0)
    assert (query.work, query.ended, query.held) == (0.0, 15.0, 0)


def test_drivers_take_the_room_of_executors_unless_they_have_a_node_of_their_own() -> None:
    queries = make_queries()
    drivers_first(26)(0.0, queries)
    assert [query.held for query in queries[:4]] == [6, 2, 1, 1]
    assert sum(query.held for query in queries) == 32
    queries = make_queries()
    split(8)(0.0, queries)
    assert [query.held for query in queries[:9]] == [6, 6, 6, 6, 5, 1, 1, 1, 0]


def test_reservation_is_faster_than_both() -> None:
    assert not volcano_reservation().missed
