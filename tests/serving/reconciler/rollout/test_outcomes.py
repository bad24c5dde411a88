"""The CloudEvents for changes of a Model's status, over whole rollouts and for single cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from clusters.base.objects import Object, timestamp
from eventing.objects.outbox import FAILED, MOST_ENTRIES, PROGRESSED, PROMOTED, ROLLED_BACK, STARTED, OutboxEntry
from serving.reconciler.rollout.outcomes import final_entries, last_sequence_after, outbox_after, outcome_events
from serving.reconciler.rollout.state import RolloutState, moment
from serving.types.annotations import ANNOTATION_CAUSE, ANNOTATION_TRACEPARENT
from serving.types.model import Cause, HistoryEntry, Model, Outcome
from serving.types.validation import read_model
from tests.serving.reconciler.rollout.play import NEW, NEWER, OLD, START, Play

EVENT = Cause("event", "42", "/train/magika")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CAUSED = {ANNOTATION_CAUSE: '{"by":"event","id":"42","source":"/train/magika"}', ANNOTATION_TRACEPARENT: TRACE}


def line(revision: str, outcome: Outcome = "", cause: Cause = EVENT, at: str = "", promoted: str = "") -> HistoryEntry:
    return HistoryEntry(revision, "7", "", f"s3://models/{revision}", cause, outcome, at or moment(START), promoted)


def model(
    rollout: RolloutState | None = None,
    history: Sequence[HistoryEntry] = (),
    outbox: Sequence[Object] = (),
    annotations: dict[str, str] | None = None,
) -> Model:
    status: dict[str, Any] = {"history": [entry.to_json() for entry in history], "outbox": list(outbox)}
    if rollout is not None:
        status["rollout"] = rollout.to_json()
    return read_model(
        {
            "apiVersion": "knodel.dev/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "magika", "namespace": "default", "annotations": annotations or {}},
            "spec": {"storageUri": "s3://models/magika", "modelFormat": "onnx"},
            "status": status,
        }
    )


def between(
    former: RolloutState | None,
    present: RolloutState | None,
    before: Sequence[HistoryEntry] = (),
    after: Sequence[HistoryEntry] = (),
) -> list[OutboxEntry]:
    return outcome_events(model(former, before), present, after, START)


def told(entries: Sequence[OutboxEntry]) -> list[tuple[str, str]]:
    return [(entry.type.split(".")[-2], entry.subject) for entry in entries]


def life(play: Play, phase: str) -> list[OutboxEntry]:
    """Return every event until the rollout is in the phase; each pass knows only the last written status."""
    entries: list[OutboxEntry] = []
    for _ in range(1000):
        former = play.state
        state = play.step(1.0)
        entries += outcome_events(model(former), state, [line(NEW)], play.now)
        if state is not None and state.phase == phase:
            return entries
    raise AssertionError(f"never {phase}")


def test_a_promoted_rollout_tells_its_start_its_steps_and_its_end() -> None:
    entries = life(Play(), "Promoted")
    assert [(entry.type, entry.data["percent"]) for entry in entries] == [
        (STARTED, 0), (PROGRESSED, 10), (PROGRESSED, 50), (PROGRESSED, 100), (PROMOTED, 100),
    ]  # fmt: skip
    assert [one["percent"] for one in entries[-1].data["passed"]] == [10, 50, 100]
    assert entries[-1].data["passed"][0]["verdict"]["decision"] == "pass"
    assert len({entry.id for entry in entries}) == 5
    assert all(one.sequence < other.sequence for one, other in pairwise(entries))


def test_a_judged_rollback_tells_the_judges_words() -> None:
    play = Play(early="fail", verdict="fail")
    *_, last = life(play, "RolledBack")
    assert (last.type, last.data["percent"], last.data["phase"]) == (ROLLED_BACK, 0, "RolledBack")
    assert last.data["reasons"] == ["the judge says fail"]
    assert last.data["verdict"]["numbers"] == {"needed": 100.0}


def test_of_the_steps_that_are_over_the_last_one_is_told_in_full() -> None:
    play = Play()
    state = play.at_step(100)
    first, second = between(state, replace(state, phase="Promoted"))[0].data["passed"]
    assert (first["percent"], first["verdict"]) == (10, {"decision": "pass"})
    assert (second["percent"], second["verdict"]["numbers"]) == (50, {"needed": 100.0})


def test_a_pause_and_its_end_are_told() -> None:
    play = Play()
    state = play.at_step(10)
    paused = replace(state, phase="Paused", paused_at=moment(play.now), reasons=("paused manually",))
    [entry] = between(state, paused)
    assert (entry.type, entry.data["phase"], entry.data["reasons"]) == (PROGRESSED, "Paused", ["paused manually"])
    assert told(between(paused, state)) == [("progressed", NEW)]


def test_a_superseded_rollout_ends_before_the_next_one_starts() -> None:
    running = Play().at_step(10)
    newer = RolloutState("Progressing", NEWER, OLD, moment(START), moment(START))
    first, second = between(running, newer)
    assert told([first, second]) == [("rolledback", NEW), ("started", NEWER)]
    assert first.data["reasons"] == [f"superseded by {NEWER}"]
    assert first.sequence < second.sequence


def test_the_same_pass_twice_tells_nothing() -> None:
    state = Play().at_step(10)
    history = [line(OLD, "promoted"), line(NEW, "serving")]
    assert between(state, state, history, history) == []
    assert between(None, None, history, history) == []


def test_a_failed_version_that_recovers_starts_once_more() -> None:
    failed = RolloutState("Failed", NEW, OLD, moment(START), moment(START), ended_at=moment(START))
    again = RolloutState("Progressing", NEW, OLD, moment(START + timedelta(seconds=9)), moment(START))
    assert told(between(None, failed)) == [("started", NEW), ("failed", NEW)]
    assert told(between(failed, again)) == [("started", NEW)]


def test_what_an_event_caused_names_it_and_has_its_trace() -> None:
    state = RolloutState("Progressing", NEW, OLD, moment(START), moment(START))
    [entry] = outcome_events(model(annotations=CAUSED), state, [line(NEW)], START)
    assert (entry.causationid, entry.causationsource, entry.traceparent) == ("42", "/train/magika", TRACE)
    assert entry.data["cause"] == {"by": "event", "id": "42", "source": "/train/magika"}
    assert (entry.data["revision"], entry.data["version"]) == (NEW, "7")
    assert entry.data["storageUri"] == f"s3://models/{NEW}"


def test_another_versions_trace_and_cause_are_not_this_ones() -> None:
    """The Model's annotation is of the newest event; a rollout that it superseded was caused by another."""
    running = Play().at_step(10)
    newer = RolloutState("Progressing", NEWER, OLD, moment(START), moment(START))
    former = replace(model(running), object=model(running, annotations=CAUSED).object, cause=EVENT)
    history = [line(NEW, cause=Cause("event", "41", "/train/magika")), line(NEWER)]
    first, second = outcome_events(former, newer, history, START)
    assert (first.causationid, first.traceparent) == ("41", "")
    assert (second.causationid, second.traceparent) == ("42", TRACE)


def test_a_persons_version_has_no_cause() -> None:
    state = RolloutState("Progressing", NEW, OLD, moment(START), moment(START))
    [entry] = outcome_events(model(), state, [line(NEW, cause=Cause())], START)
    assert (entry.causationid, entry.traceparent, entry.data["cause"]) == ("", "", {"by": "user"})


@pytest.mark.parametrize(("outcome", "type"), [("promoted", PROMOTED), ("rolledback", ROLLED_BACK), ("failed", FAILED)])
def test_without_a_rollout_the_history_tells(outcome: Outcome, type: str) -> None:
    promoted = moment(START) if outcome == "promoted" else ""
    [entry] = between(None, None, [line(NEW)], [line(NEW, outcome, promoted=promoted)])
    assert (entry.type, entry.subject) == (type, NEW)
    assert "percent" not in entry.data


@pytest.mark.parametrize(("phase", "outcome"), [("Promoted", "promoted"), ("RolledBack", "rolledback")])
def test_what_a_rollout_told_the_history_does_not_repeat(phase: Any, outcome: Outcome) -> None:
    state = replace(Play().at_step(10), phase=phase)
    assert between(state, state, [line(OLD), line(NEW, "serving")], [line(OLD), line(NEW, outcome)]) == []


def test_a_superseded_candidate_is_not_rolled_back_a_second_time() -> None:
    newer = RolloutState("Progressing", NEWER, OLD, moment(START), moment(START))
    before = [line(OLD, "promoted"), line(NEW, "serving"), line(NEWER)]
    after = [line(OLD, "promoted"), line(NEW, "rolledback"), line(NEWER)]
    assert between(newer, newer, before, after) == []


def test_the_stable_version_that_has_it_all_between_two_rollouts_is_not_promoted_again() -> None:
    newer = RolloutState("Progressing", NEWER, OLD, moment(START), moment(START))
    before = [line(OLD, "serving", promoted=moment(START)), line(NEWER)]
    after = [line(OLD, "promoted", promoted=moment(START)), line(NEWER)]
    assert between(newer, newer, before, after) == []


def test_who_takes_a_promoted_version_back_is_told_once() -> None:
    state = replace(Play().at_step(100), phase="Promoted")
    at = moment(START)
    before = [line(OLD, "superseded", promoted=at), line(NEW, "promoted", promoted=at)]
    back = line(OLD, "promoted", Cause("rollback", f"{OLD}@3"), moment(START + timedelta(hours=1)))
    after = [before[0], line(NEW, "rolledback", promoted=at), back]
    assert told(between(state, state, before, after)) == [("rolledback", NEW)]


def test_a_version_that_is_promoted_again_by_hand_is_told() -> None:
    state = replace(Play().at_step(100), phase="Promoted")
    at = moment(START)
    before = [line(OLD, "promoted", promoted=at), line(NEW, "rolledback", promoted=at)]
    again = line(NEW, "promoted", Cause(), moment(START + timedelta(hours=1)), moment(START + timedelta(hours=1)))
    after = [line(OLD, "superseded", promoted=at), line(NEW, "superseded", promoted=at), again]
    assert told(between(state, state, before, after)) == [("promoted", NEW)]


def test_who_promotes_a_refused_version_by_hand_is_told_once() -> None:
    """Its traffic comes some passes after the command, and in a further line: the stable version had it all again."""
    refused = replace(Play().at_step(10), phase="RolledBack", percent=0, ended_at=moment(START))
    ended = START + timedelta(hours=1, milliseconds=400)
    promoted = replace(refused, phase="Promoted", percent=100, ended_at=moment(ended))
    before = [
        line(OLD, "superseded", promoted=moment(START)),
        line(NEW, "rolledback"),
        line(OLD, "promoted", Cause("rollback", f"{OLD}@3"), promoted=moment(START)),
    ]
    assert told(between(refused, promoted, before, before)) == [("promoted", NEW)]
    at = timestamp(ended)  # of a pass within the same second; most come later
    after = [*before[:2], replace(before[2], outcome="superseded"), line(NEW, "promoted", at=at, promoted=at)]
    assert between(promoted, promoted, before, after) == []
    gone = [*after[:3], replace(after[3], outcome="rolledback")]
    assert told(between(promoted, promoted, after, gone)) == [("rolledback", NEW)]


def test_a_refused_version_that_a_split_by_hand_promotes_and_another_takes_back_is_told_of_both() -> None:
    refused = replace(Play().at_step(10), phase="RolledBack", percent=0, ended_at=moment(START))
    before = [line(OLD, "promoted", promoted=moment(START - timedelta(hours=1))), line(NEW, "rolledback")]
    has_all = [replace(before[0], outcome="superseded"), line(NEW, "promoted", promoted=moment(START))]
    assert told(between(refused, refused, before, has_all)) == [("promoted", NEW)]
    gone = [before[0], replace(has_all[1], outcome="rolledback")]
    assert told(between(refused, refused, has_all, gone)) == [("rolledback", NEW)]


def test_what_comes_after_an_emptied_outbox_comes_later_though_the_clock_was_set_back() -> None:
    state = RolloutState("Progressing", NEW, OLD, moment(START), moment(START))
    [sent] = first = outbox_after(model(), state, [line(NEW)], START)
    emptied = model(state, [line(NEW)])
    emptied.object["status"]["lastSequence"] = last_sequence_after(model(), first)
    [later] = outbox_after(emptied, replace(state, percent=10), [line(NEW)], START - timedelta(hours=1))
    assert later["sequence"] > sent["sequence"]
    assert last_sequence_after(emptied, []) == sent["sequence"] < last_sequence_after(emptied, [later])


def test_a_model_that_is_gone_leaves_its_outbox_and_the_end_of_its_rollout_alike_for_all() -> None:
    play = Play()
    state = play.at_step(10)
    waiting = outbox_after(model(), state, [], START)
    gone = model(state, outbox=waiting).object
    one, other = final_entries(gone, START), final_entries(gone, START + timedelta(hours=1))
    assert [entry.to_json() for entry in one[:-1]] == waiting
    assert told(one[-1:]) == [("rolledback", NEW)]
    assert one[-1].sequence > one[-2].sequence
    assert [entry.id for entry in one] == [entry.id for entry in other]
    assert final_entries(model(replace(state, phase="Promoted")).object, START) == []
    assert final_entries({**gone, "spec": None}, START) == one[:-1]


def test_the_outbox_keeps_what_waits_and_has_an_end() -> None:
    state = RolloutState("Progressing", NEW, OLD, moment(START), moment(START))
    first = outbox_after(model(), state, [line(NEW)], START)
    later = replace(state, percent=10)
    second = outbox_after(model(state, [line(NEW)], first), later, [line(NEW)], START)
    assert second[:1] == first
    assert [one["type"] for one in second] == [STARTED, PROGRESSED]
    assert second[0]["sequence"] < second[1]["sequence"]  # though the clock stands still
    full = [{**first[0], "id": str(number)} for number in range(MOST_ENTRIES)]
    kept = outbox_after(model(state, [line(NEW)], full), later, [line(NEW)], START)
    assert (len(kept), kept[0]["id"], kept[-1]["type"]) == (MOST_ENTRIES, "1", PROGRESSED)
