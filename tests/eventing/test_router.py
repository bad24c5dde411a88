"""Order and routing: each rule, and the equivalence with events that are applied one by one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventing.controller.router import route
from eventing.objects.model_event import EventSpec, EventStatus, ModelEvent, arrival_of, event_name, make_model_event
from eventing.objects.order import REMEMBERED, EventMark, mark_after, mark_of, newest_of
from tests.eventing.world import NAMESPACE, SOURCE, START, event_spec


def mark(
    number: int,
    *,
    sequence: str = "",
    time: int | None = None,
    arrived: int = 0,
    source: str = "/s",
    place: int = 0,
    sequencetype: str = "",
) -> EventMark:
    at = START + timedelta(seconds=time) if time is not None else None
    return EventMark(source, str(number), START + timedelta(seconds=arrived), at, sequence, sequencetype, place)


def event(spec: EventSpec) -> ModelEvent:
    return ModelEvent(make_model_event(NAMESPACE, spec), spec, EventStatus())


def ids(events: tuple[ModelEvent, ...]) -> list[str]:
    return [one.spec.id for one in events]


def test_sequences_of_one_source_are_compared_as_texts_and_before_all_else() -> None:
    assert mark(1, sequence="10", time=1).is_newer(mark(2, sequence="09", time=2, arrived=9))
    assert mark(1, sequence="b").is_newer(mark(2, sequence="a9", arrived=9))


@pytest.mark.parametrize(
    ("later", "earlier"),
    [("10", "9"), ("11", "10"), ("010", "9"), ("0", "-1"), ("2147483647", "2147483646"), ("-2147483648", "2147483647")],
)
def test_integers_are_compared_as_32_bit_integers_that_wrap_around(later: str, earlier: str) -> None:
    new = mark(1, sequence=later, sequencetype="Integer")
    for kind in ("Integer", ""):  # one that was kept before its sender set the type
        old = mark(2, sequence=earlier, sequencetype=kind, time=9, arrived=9)
        assert new.is_newer(old) and not old.is_newer(new) and new.is_orderable(old)


def test_a_sender_that_changes_to_integers_is_ordered_by_time_once() -> None:
    old, new = mark(1, sequence="2026-11-24", time=1), mark(2, sequence="1", sequencetype="Integer", time=2)
    assert new.is_newer(old) and not old.is_newer(new)
    assert mark(1, sequence="7", sequencetype="Integer", time=2).is_newer(
        mark(2, sequence="007", sequencetype="Integer", time=1)
    )


def test_numbers_of_different_lengths_without_a_type_are_neither_older_nor_newer() -> None:
    nine, ten = mark(1, sequence="9"), mark(2, sequence="10")
    assert not nine.is_orderable(ten)
    assert not nine.is_newer(ten) and not ten.is_newer(nine)


def test_an_event_that_cannot_be_ordered_waits_for_the_winner_and_is_refused_after_it() -> None:
    events = [event(event_spec(number, sequence=str(number))) for number in (9, 10)]
    routed = route(events, None)
    assert routed.winner is not None and routed.winner.spec.id == "9"
    assert (ids(routed.undecided), routed.unorderable, routed.beaten) == (["10"], (), ())

    routed = route(events[1:], mark_of(event_spec(9, sequence="9")))
    assert (routed.winner, ids(routed.unorderable)) == (None, ["10"])


def test_sequences_of_two_sources_say_nothing_of_each_other() -> None:
    assert mark(1, sequence="1", time=2, source="/a").is_newer(mark(2, sequence="9", time=1, source="/b"))


def test_without_two_sequences_the_time_counts_and_without_two_times_the_arrival() -> None:
    assert mark(1, sequence="9", time=2).is_newer(mark(2, time=1, arrived=9))
    assert mark(1, arrived=2).is_newer(mark(2, time=99, arrived=1))
    assert mark(1, time=5, arrived=2).is_newer(mark(2, time=5, arrived=1))


def test_of_two_different_events_one_is_newer() -> None:
    one, other = mark(1), mark(2)
    assert one.is_newer(other) != other.is_newer(one)
    assert not one.is_newer(one)


def test_a_clock_that_is_ahead_does_not_outdo_all_that_follows() -> None:
    ahead = event_spec(1, time=START + timedelta(days=1))
    assert mark_of(event_spec(2)).is_newer(mark_of(ahead))


def test_the_store_tells_which_came_first_whatever_the_clocks_of_two_webhooks_say() -> None:
    assert mark(1, arrived=0, place=8).is_newer(mark(2, arrived=2, place=7))
    assert not mark(2, arrived=2, place=7).is_newer(mark(1, arrived=0, place=8))
    assert mark(1, arrived=2, place=0).is_newer(mark(2, arrived=0, place=7))
    assert mark(1, time=1, arrived=0, place=7).is_newer(mark(2, time=0, arrived=2, place=8))
    assert mark(1, sequence="2", arrived=0, place=7).is_newer(mark(2, sequence="1", arrived=2, place=8))


def test_a_clock_that_was_set_back_makes_no_event_older_than_those_before() -> None:
    before = mark(1, time=7200, arrived=7200, place=7)
    after = mark(2, time=60, arrived=60, place=8)
    assert after.is_newer(before) and not before.is_newer(after)
    assert mark(2, arrived=60, place=8).is_newer(before)
    assert before.is_newer(mark(2, time=60, arrived=60))


def test_a_mark_survives_its_annotation() -> None:
    for known in (mark(1), mark(2, sequence="7", time=3, arrived=5)):
        model = {"metadata": {"uid": "", "annotations": {"knodel.dev/newest-event": known.to_text()}}}
        assert newest_of(model) == known


def test_the_mark_of_a_model_from_another_cluster_tells_no_place() -> None:
    known = mark_after(event_spec(1), None, 7, "u-1")
    model = {"metadata": {"uid": "u-1", "annotations": {"knodel.dev/newest-event": known.to_text()}}}
    newest = newest_of(model)
    assert newest is not None and newest.arrival == 7
    newest = newest_of({"metadata": {**model["metadata"], "uid": "u-2"}})
    assert newest is not None and newest.arrival == 0


def test_the_place_of_an_event_is_what_it_was_stored_with() -> None:
    obj = make_model_event(NAMESPACE, event_spec(1))
    assert arrival_of(obj) == 0
    obj["metadata"]["resourceVersion"] = "7"
    assert arrival_of(obj) == 7
    assert arrival_of({**obj, "status": {"phase": "Accepted", "attempts": 1}}) == 0
    assert arrival_of({**obj, "status": {"phase": "Accepted", "arrival": 5}}) == 5


def test_a_mark_that_somebody_wrote_over_counts_as_none() -> None:
    assert newest_of({"metadata": {"annotations": {"knodel.dev/newest-event": "{nonsense"}}}) is None
    assert newest_of({"metadata": {}}) is None


def test_the_newest_wins_and_the_others_wait_until_it_is_applied() -> None:
    routed = route([event(event_spec(number)) for number in (2, 3, 1)], None)
    assert routed.winner is not None and routed.winner.spec.id == "3"
    assert (ids(routed.beaten), routed.older, routed.done) == (["1", "2"], (), ())


@pytest.mark.fault("E2")
def test_what_is_older_than_the_newest_applied_one_came_too_late() -> None:
    newest = mark_of(event_spec(5))
    routed = route([event(event_spec(number)) for number in (4, 6)], newest)
    assert routed.winner is not None and routed.winner.spec.id == "6"
    assert ids(routed.older) == ["4"]


def test_the_newest_applied_event_itself_is_done() -> None:
    again = event_spec(5, received_at=event_spec(50).received_at, time=None)
    routed = route([event(again)], mark_of(event_spec(5)))
    assert (routed.winner, ids(routed.done)) == (None, ["5"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["/a", "/b"]), st.none() | st.integers(0, 5), st.sampled_from(["", "1", "2", "03", "10"])
        ),
        max_size=8,
    ),
    st.integers(0, 8),
)
def test_events_together_end_where_events_one_by_one_would(
    drawn: list[tuple[str, int | None, str]], known: int
) -> None:
    specs = [
        event_spec(
            number,
            source=source,
            time=START + timedelta(seconds=time) if time is not None else None,
            sequence=sequence,
        )
        for number, (source, time, sequence) in enumerate(drawn)
    ]
    newest = None
    for spec in specs:
        if newest is None or mark_of(spec).is_newer(newest):
            newest = mark_of(spec)
    former = None
    for spec in specs[:known]:
        if former is None or mark_of(spec).is_newer(former):
            former = mark_of(spec)
    routed = route([event(spec) for spec in reversed(specs[known:])], former)
    assert (mark_of(routed.winner.spec) if routed.winner is not None else former) == newest
    lost = (routed.done, routed.older, routed.beaten, routed.unorderable, routed.undecided)
    outcomes = [name for events in lost for name in ids(events)]
    assert sorted(outcomes + ([routed.winner.spec.id] if routed.winner else [])) == sorted(s.id for s in specs[known:])


def test_a_copy_of_what_was_applied_before_the_newest_is_older_however_late_it_comes() -> None:
    first, second, third = (event_spec(number, time=None) for number in (1, 2, 3))
    newest = mark_after(second, mark_after(first, None))
    copy = event_spec(1, time=None, received_at=event_spec(9).received_at)
    routed = route([event(third), event(copy)], newest)
    assert routed.winner is not None and routed.winner.spec.id == "3"
    assert ids(routed.older) == ["1"]


def test_a_model_remembers_the_last_events_that_were_applied_to_it() -> None:
    newest = None
    for number in range(REMEMBERED + 5):
        newest = mark_after(event_spec(number), newest)
    assert newest is not None and len(newest.applied) == REMEMBERED
    assert newest.applied[0] == event_name(SOURCE, str(REMEMBERED + 3))
