"""The traffic split: the rows of the table in `serving.reconciler.rollout.split`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Object
from serving.reconciler.rollout.split import Situation, latest_of, situation_of, split_in_force
from serving.reconciler.rollout.state import Phase, RolloutState
from serving.reconciler.rollout.versions import versions_of
from serving.types.model import Cause, HistoryEntry, Outcome
from tests.serving.models import VARIANTS, model
from tests.serving.reconciler.rollout.revisions import revision, versions


def parts(targets: tuple[Object, ...]) -> list[tuple[str, int]]:
    """(revision, or the Configuration that floats, or `latest`; percent) of each target."""
    return [
        (one.get("revisionName") or one.get("configurationName") or "latest", one["percent"])
        for one in targets
    ]  # fmt: skip


def split(situation: Situation, **spec: Any) -> list[tuple[str, int]]:
    return parts(split_in_force(model(**spec), situation).targets)


def situation(*ready: bool | None, stable: int = 0, refused: int = 0, wanted: int = 0) -> Situation:
    found = versions(*ready)
    return Situation(
        versions=found,
        generation=f"g{wanted or len(found)}",
        stable=f"magika-{stable:05d}" if stable else None,
        refused=frozenset({f"magika-{refused:05d}"}) if refused else frozenset(),
    )


def test_traffic_given_is_taken_as_written() -> None:
    traffic = [{"revision": "magika-00001", "percent": 10, "tag": "blue"}, {"latest": True, "percent": 90}]
    found = split_in_force(model(traffic=traffic, canaryTrafficPercent=50), situation(True, True, stable=1))
    assert found.targets == (
        {"revisionName": "magika-00001", "latestRevision": False, "percent": 10, "tag": "blue"},
        {"latestRevision": True, "percent": 90},
    )


def test_a_canary_gives_the_rest_to_who_last_had_everything() -> None:
    assert split(situation(True, True, stable=1), canaryTrafficPercent=10) == [("latest", 10), ("magika-00001", 90)]


def test_a_canary_before_anybody_had_everything_gives_all_to_the_latest() -> None:
    assert split(situation(), canaryTrafficPercent=10) == [("latest", 100)]


def test_a_canary_whose_stable_version_was_collected_gives_all_to_the_latest() -> None:
    assert split(situation(True, stable=9), canaryTrafficPercent=10) == [("latest", 100)]


def test_a_canary_of_zero_and_of_a_hundred_name_one_version() -> None:
    assert split(situation(True, True, stable=1), canaryTrafficPercent=0) == [("magika-00001", 100)]
    assert split(situation(True, True, stable=1), canaryTrafficPercent=100) == [("latest", 100)]


def test_nothing_given_sends_all_to_the_latest() -> None:
    assert split(situation(True, True)) == [("latest", 100)]
    assert split(situation()) == [("latest", 100)]


def test_while_the_newest_starts_knative_keeps_the_newest_ready_one() -> None:
    assert split(situation(True, None)) == [("latest", 100)]
    assert split(situation(True, False)) == [("latest", 100)]


def test_a_refused_version_does_not_come_back_while_its_successor_starts() -> None:
    assert split(situation(True, True, None, stable=1, refused=2)) == [("magika-00001", 100)]
    assert split(situation(True, True, stable=1, refused=2, wanted=3)) == [("magika-00001", 100)]
    found = split(situation(True, True, None, stable=1, refused=2), canaryTrafficPercent=10)
    assert found == [("magika-00001", 100)]


def test_a_refused_version_that_is_asked_for_again_is_promoted() -> None:
    assert split(situation(True, True, stable=1, refused=2)) == [("latest", 100)]


def test_a_refused_version_is_better_than_none() -> None:
    latest = latest_of(situation(True, None, refused=1))
    assert latest is not None
    assert latest.revision == "magika-00001"


def test_a_version_that_has_traffic_keeps_it_when_its_replicas_fail() -> None:
    crashed = replace(situation(True, True, False, stable=3, refused=2), serving=frozenset({"magika-00003"}))
    assert split(crashed) == [("latest", 100)]
    variants = Situation(
        versions_of([*pair(1, "x"), *pair(2, "y", False)]), "y", serving=frozenset({"magika-a100-00002"})
    )
    assert split(variants, variants=VARIANTS) == [("magika-a100-00002", 60), ("magika-v100-00002", 40)]


def test_a_version_that_has_traffic_keeps_it_when_it_fails_while_its_successor_starts() -> None:
    crashed = replace(situation(True, True, False, None, stable=3, refused=2), serving=frozenset({"magika-00003"}))
    assert split(crashed) == [("latest", 100)]


def test_unknown_revisions_are_told() -> None:
    traffic = [{"revision": "magika-00009", "percent": 100}]
    found = split_in_force(model(traffic=traffic), situation(True))
    assert found.unknown == ("magika-00009",)
    assert found.targets == ()


def test_a_revision_without_traffic_or_tag_may_have_been_collected() -> None:
    traffic = [{"revision": "magika-00009", "percent": 0}, {"latest": True, "percent": 100}]
    found = split_in_force(model(traffic=traffic), situation(True))
    assert found.unknown == ()
    assert parts(found.targets) == [("latest", 100)]
    tagged = [{"revision": "magika-00009", "percent": 0, "tag": "old"}, {"latest": True, "percent": 100}]
    assert split_in_force(model(traffic=tagged), situation(True)).unknown == ("magika-00009",)


def pair(number: int, generation: str, ready: bool | None = True) -> list[Object]:
    return [
        revision(number, ready, configuration=f"magika-{name}", generation=generation, variants="a100,v100")
        for name in ("a100", "v100")
    ]


def test_variants_float_until_a_version_is_ready_and_are_pinned_from_then_on() -> None:
    starting = Situation(versions_of(pair(1, "x", None)), "x")
    assert split(starting, variants=VARIANTS) == [("magika-a100", 60), ("magika-v100", 40)]
    ready = Situation(versions_of(pair(1, "x")), "x")
    assert split(ready, variants=VARIANTS) == [("magika-a100-00001", 60), ("magika-v100-00001", 40)]


def test_a_version_of_variants_is_named_by_any_of_its_revisions() -> None:
    both = Situation(versions_of([*pair(1, "x"), *pair(2, "y")]), "y")
    traffic = [{"revision": "magika-v100-00001", "percent": 5, "tag": "old"}, {"latest": True, "percent": 95}]
    found = split_in_force(model(variants=VARIANTS, traffic=traffic), both)
    assert parts(found.targets) == [
        ("magika-a100-00001", 3),
        ("magika-v100-00001", 2),
        ("magika-a100-00002", 57),
        ("magika-v100-00002", 38),
    ]
    assert [one.get("tag") for one in found.targets] == ["old", None, None, None]


def test_a_version_of_other_variants_than_todays_is_shared_alike() -> None:
    today = [{"name": "b", "percent": 100}]
    old = Situation(versions_of(pair(1, "x")), "y", stable="magika-a100-00001")
    assert split(old, variants=today) == [("magika-a100-00001", 50), ("magika-v100-00001", 50)]


def test_when_variants_have_gone_they_keep_the_traffic_until_the_new_version_is_ready() -> None:
    world = Situation(versions_of([*pair(1, "x"), revision(2, None, generation="y")]), "y")
    assert split(world) == [("magika-a100-00001", 50), ("magika-v100-00001", 50)]
    arrived = Situation(versions_of([*pair(1, "x"), revision(2, generation="y")]), "y")
    assert split(arrived) == [("latest", 100)]


def test_variants_that_have_gone_share_as_they_last_did() -> None:
    percents = {"magika-a100": 60, "magika-v100": 40, "magika-else": 7}
    world = Situation(versions_of([*pair(1, "x"), revision(2, None, generation="y")]), "y", percents=percents)
    assert split(world) == [("magika-a100-00001", 60), ("magika-v100-00001", 40)]


def test_the_history_tells_the_stable_and_the_refused_version() -> None:
    def line(number: int, outcome: Outcome, promoted: bool) -> HistoryEntry:
        return HistoryEntry(f"magika-{number:05d}", "", "", "", Cause(), outcome, "t", "t" if promoted else "")

    history = [line(1, "superseded", True), line(2, "rolledback", True), line(1, "promoted", True), line(3, "", False)]
    found = situation_of((), "g", history)
    assert found.stable == "magika-00001"
    assert found.refused == {"magika-00002"}
    assert found.serving == {"magika-00001"}


@given(
    st.lists(st.sampled_from([True, False, None]), max_size=4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(0, 100)),
    st.booleans(),
)
def test_percents_always_sum_to_a_hundred(
    ready: list[bool | None], stable: int, refused: int, canary: int | None, variants: bool
) -> None:
    spec: dict[str, Any] = {} if canary is None else {"canaryTrafficPercent": canary}
    if variants:
        spec["variants"] = VARIANTS
    found = split(situation(*ready, stable=stable, refused=refused), **spec)
    assert sum(percent for _, percent in found) == 100


def rolled(phase: Phase, percent: int = 0, candidate: int = 2, stable: int = 1) -> RolloutState:
    return RolloutState(phase, f"magika-{candidate:05d}", f"magika-{stable:05d}", "t", "t", percent=percent)


def test_a_running_rollout_shares_between_both_versions_with_tags() -> None:
    phases: tuple[Phase, ...] = ("Progressing", "Paused")
    for phase in phases:
        at_10 = replace(situation(True, True, stable=1), rollout=rolled(phase, 10))
        assert split_in_force(model(rollout={}), at_10).targets == (
            {"revisionName": "magika-00002", "latestRevision": False, "percent": 10, "tag": "candidate"},
            {"revisionName": "magika-00001", "latestRevision": False, "percent": 90, "tag": "stable"},
        )


def test_at_a_hundred_the_stable_version_keeps_its_tag_and_while_the_candidate_starts_there_is_none() -> None:
    whole = replace(situation(True, True, stable=1), rollout=rolled("Progressing", 100))
    assert split(whole, rollout={}) == [("magika-00002", 100), ("magika-00001", 0)]
    starting = replace(situation(True, None, stable=1), rollout=rolled("Progressing"))
    assert split_in_force(model(rollout={}), starting).targets == (
        {"revisionName": "magika-00001", "latestRevision": False, "percent": 100},
    )


def test_a_new_version_waits_for_its_rollout_before_and_after_it_is_made() -> None:
    assert split(situation(True, stable=1, wanted=2), rollout={}) == [("magika-00001", 100)]
    assert split(situation(True, True, stable=1), rollout={}) == [("magika-00001", 100)]
    assert split(situation(True, stable=1), rollout={}) == [("latest", 100)]


def test_what_a_rollout_refused_gets_nothing_with_or_without_the_field_until_another_version_is_there() -> None:
    phases: tuple[Phase, ...] = ("RolledBack", "Failed")
    for phase in phases:
        refused = replace(situation(True, True, stable=1), rollout=rolled(phase))
        assert split(refused, rollout={}) == split(refused) == [("magika-00001", 100)]
        making = replace(situation(True, True, stable=1, wanted=3), rollout=rolled(phase))
        assert split(making, rollout={}) == split(making) == [("magika-00001", 100)]
    ready = replace(situation(True, True, True, stable=1), rollout=rolled("RolledBack"))
    assert split(ready) == [("latest", 100)]
    assert split(ready, rollout={}) == [("magika-00001", 100)]


def test_a_promoted_version_has_all_and_the_next_one_follows_it_though_nobody_has_seen_that_yet() -> None:
    history = [HistoryEntry(name, "", "", "", Cause(), "serving", "t", promoted) for name, promoted in
               (("magika-00001", "t"), ("magika-00002", ""))]  # fmt: skip
    seen = situation_of(versions(True, True), "g2", history, rollout=rolled("Promoted", 100))
    assert split(seen, rollout={}) == [("latest", 100)]
    assert seen.stable == "magika-00002"
    newer = situation_of(versions(True, True, None), "g3", history, rollout=rolled("Promoted", 100))
    assert split(newer, rollout={}) == [("magika-00002", 100)]


def test_a_promoted_version_that_is_not_usable_or_whose_split_is_by_hand_is_not_what_the_next_one_follows() -> None:
    history = [HistoryEntry("magika-00001", "", "", "", Cause(), "serving", "t", "t")]
    promoted = rolled("Promoted", 100)
    assert situation_of(versions(True, None), "g2", history, rollout=promoted).stable == "magika-00001"
    assert situation_of(versions(True, True), "g2", history, rollout=promoted, by_hand=True).stable == "magika-00001"
    assert situation_of(versions(True, True), "g2", history, rollout=promoted).stable == "magika-00002"


def test_an_old_record_of_a_rollout_pins_nothing() -> None:
    old = replace(situation(True, True, True, stable=3), rollout=rolled("Promoted", 100))
    assert split(old) == [("latest", 100)]
    making = replace(situation(True, True, True, stable=3, wanted=4), rollout=rolled("Promoted", 100))
    assert split(making) == [("latest", 100)]
    assert split(making, rollout={}) == [("magika-00003", 100)]


def test_traffic_by_hand_comes_before_a_rollout() -> None:
    running = replace(situation(True, True, stable=1), rollout=rolled("Progressing", 50))
    assert split(running, rollout={}, canaryTrafficPercent=5) == [("latest", 5), ("magika-00001", 95)]
    traffic = [{"revision": "magika-00001", "percent": 100}]
    assert split(running, rollout={}, traffic=traffic) == [("magika-00001", 100)]


def test_a_rollout_of_variants_shares_each_version_among_them() -> None:
    both = Situation(
        versions_of([*pair(1, "x"), *pair(2, "y")]), "y", stable="magika-a100-00001",
        rollout=RolloutState("Progressing", "magika-a100-00002", "magika-a100-00001", "t", "t", percent=50),
    )  # fmt: skip
    assert split(both, variants=VARIANTS, rollout={}) == [
        ("magika-a100-00002", 30), ("magika-v100-00002", 20), ("magika-a100-00001", 30), ("magika-v100-00001", 20),
    ]  # fmt: skip
