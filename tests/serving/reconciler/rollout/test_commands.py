"""The patches of promote, rollback and traffic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.base.errors import Invalid, NotFound
from clusters.base.objects import Object
from serving.reconciler.rollout.commands import (
    NoRollout,
    NothingToRollBackTo,
    abort,
    done_command,
    pause,
    promote,
    resume,
    rollback,
    traffic,
)
from serving.reconciler.rollout.state import RolloutState
from tests.serving.models import stored_object
from tests.serving.reconciler.rollout.revisions import revision

LIVING = [revision(1), revision(2)]


def model(history: list[tuple[str, bool]], shares: dict[str, int], **spec: Any) -> Object:
    obj = stored_object(generation=7, **spec)
    obj["status"] = {
        "history": [
            {"revision": name, "storageUri": f"file:///{name}", "version": "old", "cause": {"by": "user"}, "at": "t"}
            | ({"promotedAt": "t"} if full else {})
            for name, full in history
        ],
        "traffic": [{"revision": name, "percent": percent} for name, percent in shares.items()],
    }
    return obj


def cause(patch: Object) -> Any:
    return json.loads(patch["metadata"]["annotations"]["knodel.dev/cause"])


def test_promote_ends_pin_and_canary() -> None:
    assert promote(stored_object())["spec"] == {"traffic": None, "canaryTrafficPercent": None}


def test_rollback_pins_who_had_it_before() -> None:
    patch = rollback(model([("magika-00001", True), ("magika-00002", True)], {"magika-00002": 100}), LIVING)
    assert patch["spec"] == {
        "traffic": [{"revision": "magika-00001", "percent": 100}],
        "canaryTrafficPercent": None,
    }
    assert cause(patch) == {"by": "rollback", "id": "magika-00001@7"}


@pytest.mark.fault("C1")
def test_a_rollback_that_is_given_again_is_the_same_one() -> None:
    moved = model([("magika-00001", True), ("magika-00002", True)], {"magika-00002": 100})
    first = rollback(moved, LIVING, "magika-00001")
    stored = {**moved, "spec": {**moved["spec"], "traffic": first["spec"]["traffic"]}}
    stored["metadata"] = {**moved["metadata"], **first["metadata"], "generation": 8}

    assert rollback(stored, LIVING, "magika-00001") == first

    unpinned = {**stored, "spec": {**stored["spec"], "traffic": None}}
    assert cause(rollback(unpinned, LIVING, "magika-00001"))["id"] == "magika-00001@8"


def test_any_revision_of_a_version_with_variants_names_the_whole_version() -> None:
    large, small = (
        revision(1, configuration=f"magika-{name}", generation="x", variants="large,small")
        for name in ("large", "small")
    )
    moved = model([("magika-large-00001", True)], {"magika-large-00001": 50, "magika-small-00001": 50})
    first = rollback(moved, [large, small], "magika-large-00001")
    assert first["spec"]["traffic"] == [{"revision": "magika-large-00001", "percent": 100}]
    stored = {**moved, "spec": {**moved["spec"], "traffic": first["spec"]["traffic"]}}
    stored["metadata"] = {**moved["metadata"], **first["metadata"], "generation": 8}
    assert rollback(stored, [large, small], "magika-small-00001") == first


def test_rollback_out_of_a_split_goes_to_who_last_had_it() -> None:
    shares = {"magika-00001": 90, "magika-00002": 10}
    patch = rollback(model([("magika-00001", True), ("magika-00002", False)], shares), LIVING)
    assert patch["spec"]["traffic"] == [{"revision": "magika-00001", "percent": 100}]


def test_rollback_with_nothing_before_says_what_to_do() -> None:
    with pytest.raises(NothingToRollBackTo, match="--to"):
        rollback(model([("magika-00001", True)], {"magika-00001": 100}), LIVING)


def test_rollback_to_an_unknown_revision_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"magika-00009 .* known: magika-00001 \(1\), magika-00002 \(2\)$"):
        rollback(model([], {}), LIVING, "magika-00009")


@pytest.mark.parametrize("ready", [False, None])
def test_a_version_that_was_never_ready_gets_no_traffic(ready: bool | None) -> None:
    never = model([("magika-00001", True), ("magika-00002", False), ("magika-00003", False)], {"magika-00002": 100})
    revisions = [revision(1), revision(2), revision(3, ready)]
    words = "magika-00003 was never ready: choose one of magika-00001, magika-00002$"
    for name in ("magika-00003", "3"):
        with pytest.raises(Invalid, match=words):
            rollback(never, revisions, name)
        with pytest.raises(Invalid, match=words):
            traffic(never, [(name, 100)], revisions)
        with pytest.raises(Invalid, match=words):
            traffic(never, [("latest", 100), (name, 0)], revisions)


def test_a_version_that_failed_and_was_collected_is_not_made_anew() -> None:
    never = model([("magika-00001", True), ("magika-00002", False)], {"magika-00001": 100})
    never["status"]["history"][1]["outcome"] = "failed"
    with pytest.raises(Invalid, match=r"magika-00002 was never ready: choose one of magika-00001$"):
        rollback(never, [revision(1)], "magika-00002")


def test_a_version_that_was_ready_once_gets_traffic_though_it_fails_now() -> None:
    pin = [{"revision": "magika-00001", "percent": 100}]
    revisions = [revision(1, False), revision(2)]
    promoted = model([("magika-00001", True), ("magika-00002", True)], {"magika-00002": 100})
    serving = model([], {"magika-00001": 10, "magika-00002": 90})
    latest = model([], {})
    latest["status"]["latestReadyRevision"] = "magika-00001"
    for was_ready in (promoted, serving, latest):
        assert rollback(was_ready, revisions, "magika-00001")["spec"]["traffic"] == pin
        assert traffic(was_ready, [("magika-00001", 100)], revisions)["spec"]["traffic"] == pin


def test_versions_can_be_named_by_their_labels() -> None:
    history = [("magika-00001", True), ("magika-00002", True)]
    assert rollback(model(history, {}), LIVING, "1")["spec"]["traffic"] == [
        {"revision": "magika-00001", "percent": 100}
    ]
    split = traffic(model(history, {}), [("2", 90), ("latest", 10)], LIVING)["spec"]["traffic"]
    assert split == [{"revision": "magika-00002", "percent": 90}, {"latest": True, "percent": 10}]


def test_a_label_that_two_versions_have_names_neither() -> None:
    same = revision(2)
    same["metadata"]["annotations"]["knodel.dev/version"] = "1"
    words = "is the label of magika-00001 and magika-00002: give the name of the revision"
    with pytest.raises(Invalid, match=words):
        rollback(model([], {}), [revision(1), same], "1")
    with pytest.raises(Invalid, match=words):
        traffic(model([], {}), [("1", 100)], [revision(1), same])


def test_a_collected_version_is_made_anew_from_its_record() -> None:
    patch = rollback(model([("magika-00001", True)], {}), [revision(2)], "magika-00001")
    assert patch["spec"] == {
        "storageUri": "file:///magika-00001",
        "digest": None,
        "version": "old",
        "traffic": None,
        "canaryTrafficPercent": None,
    }


def test_a_collected_version_of_a_service_is_made_anew_with_its_url() -> None:
    url = "http://ranker-1-serve-svc:8000/rank"
    moved = model([("magika-00001", True), ("magika-00002", True)], {"magika-00002": 100})
    moved["spec"] = {"modelFormat": "ray", "ray": {"service": "http://ranker-2-serve-svc:8000/rank"}}
    moved["status"]["history"][0]["storageUri"] = f"ray+{url}"
    patch = rollback(moved, [revision(2)])
    assert patch["spec"]["ray"] == {"service": url}
    assert patch["spec"]["storageUri"] is None
    moved["status"]["history"][0]["storageUri"] = "file:///before"
    patch = rollback(moved, [revision(2)])
    assert patch["spec"]["storageUri"] == "file:///before"
    assert patch["spec"]["ray"] == {"service": None}


def test_traffic_writes_the_split_and_keeps_tags_of_what_is_named_again() -> None:
    present = [
        {"revision": "magika-00001", "percent": 0, "tag": "blue"},
        {"revision": "magika-00002", "percent": 100, "tag": "green"},
    ]
    patch = traffic(model([], {}, traffic=present), [("magika-00001", 30), ("latest", 70)], LIVING)
    assert patch["spec"]["traffic"] == [
        {"revision": "magika-00001", "percent": 30, "tag": "blue"},
        {"latest": True, "percent": 70},
    ]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([("latest", 90)], "sum to 90"),
        ([("latest", 101)], "from 0 to 100"),
        ([("latest", -1), ("magika-00001", 101)], "from 0 to 100"),
        ([("latest", 50), ("latest", 50)], "is given twice"),
        ([], "sum to 0"),
    ],
)
def test_percents_that_make_no_split_are_refused(targets: list[tuple[str, int]], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        traffic(model([], {}), targets, LIVING)


def test_traffic_to_an_unknown_revision_is_not_found() -> None:
    with pytest.raises(NotFound, match="magika-00009"):
        traffic(model([], {}), [("magika-00009", 100)], LIVING)


def rolling(phase: str, **spec: Any) -> Object:
    obj = model([("magika-00001", True)], {"magika-00001": 90, "magika-00002": 10}, **spec)
    state = RolloutState(phase, "magika-00002", "magika-00001", "t", "t", percent=10)  # type: ignore[arg-type]
    obj["status"] |= {"rollout": state.to_json(), "latestReadyRevision": "magika-00002"}
    return obj


def command(patch: Object) -> Any:
    return patch["metadata"]["annotations"]["knodel.dev/rollout"]


def test_commands_name_the_candidate_and_resume_takes_them_back() -> None:
    assert command(pause(rolling("Progressing"))) == "pause@magika-00002"
    assert command(abort(rolling("Paused"))) == "abort@magika-00002"
    assert command(resume(rolling("Paused"))) is None


@pytest.mark.parametrize("change", [pause, abort, resume])
def test_without_a_rollout_under_way_there_is_nothing_to_command(change: Any) -> None:
    with pytest.raises(NoRollout, match="no running rollout"):
        change(model([], {}))
    with pytest.raises(NoRollout, match="is RolledBack"):
        change(rolling("RolledBack"))


def test_what_traffic_by_hand_holds_cannot_be_resumed() -> None:
    with pytest.raises(NoRollout, match=r"spec\.traffic"):
        resume(rolling("Paused", traffic=[{"latest": True, "percent": 100}]))


@pytest.mark.parametrize(
    ("phase", "said", "done"),
    [
        ("Progressing", "pause@magika-00002", False),
        ("Progressing", "promote@magika-00002", False),
        ("Progressing", "promote@magika-00003", False),  # of a version that is to come
        ("Progressing", "abort@magika-00001", True),
        ("Promoted", "promote@magika-00002", True),
        ("Promoted", "pause@magika-00002", True),
        ("RolledBack", "abort@magika-00002", True),
        ("RolledBack", "promote@magika-00002", False),
    ],
)
def test_a_command_that_is_done_goes_with_the_next_patch(phase: Any, said: str, done: bool) -> None:
    obj = rolling(phase, rollout={})
    obj["metadata"]["annotations"] = {"knodel.dev/rollout": said}
    expected = {"knodel.dev/rollout": None} if done else {}
    assert done_command(obj) == expected
    annotations = traffic(obj, [("magika-00001", 100)], LIVING)["metadata"]["annotations"]
    assert {name: value for name, value in annotations.items() if name == "knodel.dev/rollout"} == expected


def test_promote_ends_the_rollout_as_well_and_rollback_aborts_it() -> None:
    assert command(promote(rolling("Progressing", rollout={}))) == "promote@magika-00002"
    assert command(promote(rolling("RolledBack"))) == "promote@magika-00002"
    assert "knodel.dev/rollout" not in promote(stored_object())["metadata"]["annotations"]
    patch = rollback(rolling("Progressing", rollout={}), LIVING)
    assert command(patch) == "abort@magika-00002"
    assert cause(patch)["by"] == "rollback"
    assert patch["spec"]["traffic"] == [{"revision": "magika-00001", "percent": 100}]
