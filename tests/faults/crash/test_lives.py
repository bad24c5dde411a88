"""The platform is killed before and after every single write of a Model's life; what stands at the end is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import MODEL, POD, is_true, uid_of
from serving.cli.orphans import find_orphans
from tests.faults.crash.chapters import Chapter, allow_events, by_claim, by_hand, by_judge, by_rollout
from tests.faults.crash.crashing import CrashingMachine, crashing
from tests.faults.crash.ledger import Ledger
from tests.faults.crash.sweep import Sweep, eventually
from tests.faults.crash.view import is_free_member
from tests.faults.kit.crash import WHENS, When
from tests.platform.test_life import Prober

WITHIN = 60.0  # s until nothing is left of what was deleted
MEMBERS = 2
"""Of the pool: one is spared for a revision that has no replica at all, so the other is claimed."""
MOST = 0.8
"""Share of the writes at which a crash must have come: how many gather in one transaction is a matter of time."""
STRIDE = 12
"""In a judged life, which takes seconds for the judge's looks, only every such write; with `--full` all."""


@pytest.mark.fault("K1", "K7", "E4", "C1")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", WHENS)
def test_a_crash_at_any_write_of_a_life_changes_nothing_of_what_comes_of_it(tmp_path: Path, when: When) -> None:
    with crashing(tmp_path) as here:
        sweep = swept(here, by_hand(allow_events(here)), when, 1)

        assert sweep.crashes >= MOST * sum(sweep.writes)


@pytest.mark.fault("K1", shortened=f"every {STRIDE}th write, not every one")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("when", WHENS)
def test_a_crash_at_any_write_changes_nothing_of_what_a_judge_decides(tmp_path: Path, when: When, full: bool) -> None:
    with crashing(tmp_path) as here:
        sweep = swept(here, by_judge(), when, 1 if full else STRIDE)

        assert sweep.crashes


@pytest.mark.fault("K7")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", WHENS)
def test_a_crash_at_any_write_of_a_deletion_in_the_middle_of_a_rollout_leaves_nothing(
    tmp_path: Path, when: When
) -> None:
    with crashing(tmp_path) as here:
        sweep = swept(here, by_rollout(), when, 1)

        assert sweep.crashes >= MOST * sum(sweep.writes)
        assert sweep.told[1].view["Model MODEL"]["status"]["rollout"]["phase"] == "Progressing"


@pytest.mark.fault("W3", "K1")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", WHENS)
def test_a_crash_at_any_write_of_a_claim_leaks_no_member(tmp_path: Path, when: When) -> None:
    with crashing(tmp_path) as here:
        here.run("pool", "set", "ready", "--size", str(MEMBERS))
        ledger = Ledger(here.folder)
        eventually(lambda: members(ledger) == MEMBERS, WITHIN, "the pool does not fill")
        sweep = swept(here, by_claim(), when, 1, MEMBERS)

        assert sweep.crashes >= MOST * sum(sweep.writes)
        assert any(is_claimed(one.value) for one in here.written(0) if one.resource == POD.resource and one.value)


def members(ledger: Ledger) -> int:
    """Members of the pool that are ready, and free."""
    ledger.follow()
    return sum(is_free_member(pod) and is_true(pod, "Ready") for pod in ledger.of_kind(POD))


def swept(here: CrashingMachine, chapters: tuple[Chapter, ...], when: When, stride: int, members: int = 0) -> Sweep:
    """Live all lives, and check what is left of them, and that a Model that has no part in it served on."""
    here.run("deploy", "steady", "--uri", here.artifact("double"), "--min", "1", "--max", "1")
    prober, sweep = Prober(here.port, "steady"), Sweep(here, chapters)
    sweep.without_crashes("life-000")
    print([(chapter.name, told.writes) for chapter, told in zip(chapters, sweep.told, strict=True)])
    for write in range(1, max(sweep.writes) + 1, stride):
        sweep.with_crashes(f"life-{write:03}", write, when)
    prober.stop()
    print(f"{sweep.crashes} crashes, the slowest was over after {sweep.slowest:.1f} s; {prober.answered} answers")

    assert prober.failures == []
    assert sweep.ledger.faults == []
    assert_nothing_is_left(here, sweep, members)
    return sweep


def assert_nothing_is_left(here: CrashingMachine, sweep: Sweep, members: int) -> None:
    """Of the lives: no object without an owner, no process, no folder. A pool has its members, and no more."""
    ledger = sweep.ledger

    def clean() -> bool:
        ledger.follow()
        processes = [remain for remain in find_orphans(here.state) if remain.role == "pod"]
        folders = {path.name for path in (here.state / "pods").iterdir()}
        pods = ledger.of_kind(POD)
        counts = {len(processes), len(pods), len(folders)}
        return not ledger.orphans() and counts == {1 + members} and folders == {uid_of(pod) for pod in pods}

    eventually(clean, WITHIN, "something is left")
    assert [obj["metadata"]["name"] for obj in here.list(MODEL)] == ["steady"]
    here.end()
    here.run("down")
    assert here.processes() == []
