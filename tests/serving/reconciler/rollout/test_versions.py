"""Grouping of Revisions into versions."""

from __future__ import annotations

from serving.reconciler.rollout.versions import shares_of, version_with, versions_of
from tests.serving.reconciler.rollout.revisions import revision, versions

PAIR = "a100,v100"


def variant(name: str, number: int, generation: str, ready: bool | None = True) -> dict[str, object]:
    return revision(number, ready, configuration=f"magika-{name}", generation=generation, variants=PAIR)


def test_without_variants_each_revision_is_a_version_oldest_first() -> None:
    found = versions_of([revision(2), revision(1, False), revision(3, None)])
    assert [(one.revision, one.ready, one.failure is not None) for one in found] == [
        ("magika-00001", False, True),
        ("magika-00002", True, False),
        ("magika-00003", False, False),
    ]


def test_variants_of_one_label_are_one_version_ready_when_all_are() -> None:
    [version] = versions_of([variant("v100", 1, "x", None), variant("a100", 1, "x")])
    assert version.revision == "magika-a100-00001"
    assert version.revisions == {"magika-a100": "magika-a100-00001", "magika-v100": "magika-v100-00001"}
    assert version.complete
    assert not version.ready


def test_a_version_without_one_of_its_variants_is_not_complete() -> None:
    [version] = versions_of([variant("a100", 1, "x")])
    assert not version.complete
    assert not version.ready


def test_what_ran_before_and_runs_again_is_two_versions() -> None:
    again = [variant("a100", 1, "x"), variant("v100", 1, "x"), variant("a100", 2, "y"), variant("v100", 2, "y")]
    found = versions_of([*again, variant("a100", 3, "x"), variant("v100", 3, "x", None)])
    assert [(one.revision, one.ready) for one in found] == [
        ("magika-a100-00001", True),
        ("magika-a100-00002", True),
        ("magika-a100-00003", False),
    ]
    assert found[2].revisions["magika-v100"] == "magika-v100-00003"


def test_of_two_made_in_one_second_the_history_decides() -> None:
    first, second = revision(1, configuration="magika-x"), revision(1, configuration="magika-a", generation="other")
    assert [one.revision for one in versions_of([first, second], ["magika-x-00001", "magika-a-00001"])] == [
        "magika-x-00001",
        "magika-a-00001",
    ]


def test_shares_add_up_over_the_variants_of_a_version() -> None:
    found = versions_of([variant("a100", 1, "x"), variant("v100", 1, "x")])
    traffic = [
        {"revision": "magika-a100-00001", "percent": 60},
        {"revision": "magika-v100-00001", "percent": 30},
        {"revision": "magika-00001", "percent": 10},
    ]
    assert shares_of(traffic, found) == {"magika-a100-00001": 90, "magika-00001": 10}


def test_a_version_is_found_by_any_of_its_revisions() -> None:
    assert version_with(versions(True), "magika-00002") is None
    [version] = versions(True)
    assert version_with([version], "magika-00001") is version
