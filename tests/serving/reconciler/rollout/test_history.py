"""The history of a Model: the rows of its truth table, and complete sequences."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.reconciler.rollout.history import (
    MOST_ENTRIES,
    _Line,
    advance_history,
    outcome_after,
    rollback_target,
    stable_of,
)
from serving.reconciler.rollout.versions import Version
from serving.types.model import Cause, HistoryEntry, Outcome
from tests.serving.reconciler.rollout.revisions import versions

R1, R2, R3 = "magika-00001", "magika-00002", "magika-00003"
USER = Cause()


@pytest.mark.parametrize(
    ("share", "was", "failed", "newer", "anybody", "becomes"),
    [
        pytest.param(100, "", False, False, True, "promoted", id="all of the traffic promotes"),
        pytest.param(100, "rolledback", False, False, True, "promoted", id="also what was rolled back"),
        pytest.param(10, "", False, False, True, "serving", id="a part of the traffic serves"),
        pytest.param(90, "promoted", False, True, True, "serving", id="also what had it all"),
        pytest.param(0, "promoted", False, True, True, "superseded", id="lost it to a newer one"),
        pytest.param(0, "serving", False, False, True, "rolledback", id="lost it to an older one"),
        pytest.param(0, "serving", False, False, False, "serving", id="nobody is seen to serve: nothing was decided"),
        pytest.param(0, "", True, False, True, "failed", id="never became ready"),
        pytest.param(0, "failed", True, True, True, "failed", id="failed stays failed under a newer one"),
        pytest.param(0, "failed", False, False, True, "", id="recovered"),
        pytest.param(0, "", False, True, True, "superseded", id="never served, a newer one does"),
        pytest.param(0, "", False, False, True, "", id="ready at nothing"),
        pytest.param(0, "failed", None, True, True, "failed", id="collected: as it was"),
        pytest.param(0, "superseded", False, False, True, "superseded", id="superseded stays"),
        pytest.param(0, "rolledback", True, True, True, "rolledback", id="rolled back stays"),
    ],
)
def test_row(share: int, was: Outcome, failed: bool | None, newer: bool, anybody: bool, becomes: Outcome) -> None:
    assert outcome_after(_Line(was, share, failed, newer, anybody)) == becomes


class Life:
    """A Model's history, pass by pass; each pass is a second after the last one."""

    def __init__(self) -> None:
        self.history: tuple[HistoryEntry, ...] = ()
        self.shares: dict[str, int] = {}
        self._second = 0

    def look(
        self, found: Sequence[Version], cause: Cause = USER, coming: str = "", refused: str = "", **shares: int
    ) -> list[tuple[str, str, str]]:
        self._second += 1
        self.shares = {f"magika-{name[1:].zfill(5)}": percent for name, percent in shares.items()}
        now = f"2026-01-01T00:{self._second // 60:02d}:{self._second % 60:02d}Z"
        self.history = advance_history(self.history, found, self.shares, cause, now, coming=coming, refused=refused)
        again = advance_history(
            self.history, found, self.shares, cause, "2027-01-01T00:00:00Z", coming=coming, refused=refused
        )  # fmt: skip
        assert again == self.history
        return [(entry.revision[-1], entry.outcome, entry.cause.by) for entry in self.history]

    def target(self) -> str | None:
        found = rollback_target(self.history, self.shares)
        return found.revision if found is not None else None


def test_a_life_with_canary_promotion_and_rollback() -> None:
    life = Life()
    assert life.look(versions(None)) == [("1", "", "user")]
    assert life.look(versions(True), r1=100) == [("1", "promoted", "user")]
    assert life.target() is None
    assert life.look(versions(True, None), r1=100) == [("1", "promoted", "user"), ("2", "", "user")]
    assert life.look(versions(True, True), r1=90, r2=10) == [("1", "serving", "user"), ("2", "serving", "user")]
    assert (life.target(), stable_of(life.history)) == (R1, R1)
    assert life.look(versions(True, True), r2=100) == [("1", "superseded", "user"), ("2", "promoted", "user")]
    assert (life.target(), stable_of(life.history)) == (R1, R2)
    back = Cause("rollback", f"{R1}@7")
    assert life.look(versions(True, True), back, r1=100) == [
        ("1", "superseded", "user"),
        ("2", "rolledback", "user"),
        ("1", "promoted", "rollback"),
    ]
    assert (life.target(), stable_of(life.history)) == (R2, R1)
    assert life.look(versions(True, True, True), back, r3=100)[-2:] == [
        ("1", "superseded", "rollback"),
        ("3", "promoted", "user"),
    ]
    assert life.target() == R1


def test_a_canary_replaced_by_a_newer_canary_is_superseded() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r1=90, r2=10)
    assert life.look(versions(True, True, True), r1=90, r3=10) == [
        ("1", "serving", "user"),
        ("2", "superseded", "user"),
        ("3", "serving", "user"),
    ]
    assert life.target() == R1


def test_a_rollback_out_of_a_canary_is_a_line_of_its_own_and_spends_its_cause() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r1=90, r2=10)
    back = Cause("rollback", f"{R1}@3")
    assert life.look(versions(True, True), back, r1=100)[1:] == [
        ("2", "rolledback", "user"),
        ("1", "promoted", "rollback"),
    ]
    assert life.look(versions(True, True, None), back, r1=100)[-1] == ("3", "", "user")


def test_a_rollback_to_the_version_that_a_rollback_gave_all_adds_no_line() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r2=100)
    rows = life.look(versions(True, True), Cause("rollback", f"{R1}@3"), r1=100)
    assert rows[-1] == ("1", "promoted", "rollback")
    promoted_at = life.history[-1].promoted_at
    assert life.look(versions(True, True), Cause("rollback", f"{R1}@4"), r1=100) == rows
    assert (life.history[-1].promoted_at, life.target()) == (promoted_at, R2)
    life.look(versions(True, True), Cause("rollback", f"{R1}@4"), r1=90, r2=10)
    assert len(life.look(versions(True, True), Cause("rollback", f"{R1}@5"), r1=100)) == len(rows) + 1


def test_a_rollback_to_a_living_version_causes_no_new_one() -> None:
    """A deploy keeps the Model's annotation; a rollout that fell back meanwhile gave the line another cause."""
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r1=50, r2=50)
    rows = life.look(versions(True, True), Cause("rollback", f"{R1}@2026-01-01T00:00:00Z"), r1=100)
    by_hand = Cause("rollback", f"{R1}@3")
    assert life.look(versions(True, True, None), by_hand, r1=100) == [*rows, ("3", "", "user")]
    collected = Cause("rollback", f"{R2}@9")
    one, _, three = versions(True, True, True)
    assert life.look((one, three, *versions(True, True, True, None)[3:]), collected, r3=100)[3:] == [
        ("3", "promoted", "user"),
        ("4", "", "rollback"),
    ]


def test_an_event_causes_the_version_that_it_brought() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    event = Cause("event", "42", "/train")
    assert life.look(versions(True, None), event, r1=100)[-1] == ("2", "", "event")
    assert life.look(versions(True, True, None), event, r2=100)[-1] == ("3", "", "user")


def test_a_failed_version_is_told_once_and_the_old_one_goes_on() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    assert life.look(versions(True, False), r1=100) == [("1", "promoted", "user"), ("2", "failed", "user")]
    assert life.look(versions(True, False, True), r3=100) == [
        ("1", "superseded", "user"),
        ("2", "failed", "user"),
        ("3", "promoted", "user"),
    ]
    assert life.target() == R1


def test_an_older_version_that_never_had_it_all_gets_a_line_when_it_does() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r1=90, r2=10)
    life.look(versions(True, True, True), r3=100)
    assert life.look(versions(True, True, True), r2=100)[-1] == ("2", "promoted", "user")
    assert life.target() == R3


def test_only_the_newest_lines_are_kept_and_always_the_last_two_that_had_it_all() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r2=100)
    found = versions(True, True, *([False] * 60))
    life.look(found, r2=100)
    assert len(life.history) == MOST_ENTRIES
    assert [entry.revision for entry in life.history[:2]] == [R1, R2]
    assert life.history[-1].revision == "magika-00062"
    assert life.target() == R1


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 100), st.sampled_from([True, False, None])),
        max_size=12,
    )
)
def test_the_same_look_twice_changes_nothing(looks: list[tuple[int, int, int, bool | None]]) -> None:
    life = Life()
    for count, other, percent, newest in looks:
        found = versions(*([True] * (count - 1)), newest)
        shares = {f"r{count}": percent, f"r{other + 1}": 100 - percent} if other + 1 != count else {f"r{count}": 100}
        life.look(found, USER, "", "", **shares)
    full = [entry for entry in life.history if entry.outcome == "promoted"]
    assert len(full) <= 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100)), max_size=8), st.integers(1, 3))
def test_a_rollback_that_is_given_twice_adds_one_line(looks: list[tuple[int, int]], target: int) -> None:
    life, found = Life(), versions(True, True, True)
    for number, (revision, percent) in enumerate(looks):
        other = revision % 3 + 1
        cause = Cause("rollback", f"magika-{revision:05d}@{number}")
        life.look(found, cause, "", "", **{f"r{revision}": percent, f"r{other}": 100 - percent})
    first, second = (
        life.look(found, Cause("rollback", f"magika-{target:05d}@again-{number}"), "", "", **{f"r{target}": 100})
        for number in range(2)
    )
    assert second == first


def test_a_version_that_a_newer_rollout_replaces_is_superseded_though_the_stable_one_serves() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    life.look(versions(True, True), r1=50, r2=50, coming=R2)
    assert life.look(versions(True, True, None), r1=100, coming=R3)[1:] == [
        ("2", "superseded", "user"),
        ("3", "", "user"),
    ]


def test_a_version_that_was_refused_before_it_had_traffic_is_rolled_back() -> None:
    life = Life()
    life.look(versions(True), r1=100)
    assert life.look(versions(True, True), r1=100, refused=R2)[1] == ("2", "rolledback", "user")
    assert life.look(versions(True, True, True), r1=100, coming=R3)[1] == ("2", "rolledback", "user")
