"""Actions for the replicas of a revision, by their digests and the record."""

from __future__ import annotations

import math

import pytest

from autoscaler.reconciler.digest_rules import (
    FIRST_BACKOFF,
    FORGOTTEN_AFTER,
    LONGEST_BACKOFF,
    ConfirmDigest,
    Deletions,
    DigestAction,
    RecordDigest,
    RefusalReason,
    RefuseReplica,
    ReplicaDigest,
    judge,
    message_of,
)

FIRST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")
NONE = Deletions()


def judged(
    *replicas: ReplicaDigest, record: str = FIRST, deletions: Deletions = NONE, mounted: bool = True
) -> list[DigestAction]:
    return judge(replicas, record, deletions, 1_000.0, is_mounted=mounted)


def test_the_first_digest_is_recorded_before_any_replica_is_confirmed() -> None:
    assert judged(record="") == []
    assert judged(ReplicaDigest("d/a", ""), record="") == []
    assert judged(ReplicaDigest("d/b", OTHER, waits=True), ReplicaDigest("d/a", FIRST, waits=True), record="") == [
        RecordDigest(FIRST)
    ]


def test_what_is_served_already_is_recorded_rather_than_what_waits() -> None:
    assert judged(ReplicaDigest("d/a", OTHER, waits=True), ReplicaDigest("d/b", FIRST, ready=True), record="") == [
        RecordDigest(FIRST)
    ]


@pytest.mark.parametrize("mounted", [True, False])
def test_a_replica_with_the_recorded_digest_is_confirmed_if_it_waits_and_else_left_alone(mounted: bool) -> None:
    waits, serves = ReplicaDigest("d/a", FIRST, waits=True), ReplicaDigest("d/b", FIRST, ready=True)
    assert judged(waits, serves, mounted=mounted) == [ConfirmDigest("d/a")]


def test_a_replica_with_another_digest_is_deleted_and_never_confirmed() -> None:
    refused = [RefuseReplica("d/b", OTHER, RefusalReason.DELETED), RefuseReplica("d/a", OTHER, RefusalReason.DELETED)]
    assert judged(ReplicaDigest("d/a", OTHER, waits=True), ReplicaDigest("d/b", OTHER, ready=True)) == refused


def test_a_replica_that_waits_is_kept_while_a_new_pod_would_have_no_record_either() -> None:
    waits, serves = ReplicaDigest("d/a", OTHER, waits=True), ReplicaDigest("d/b", OTHER, ready=True)
    assert judged(waits, mounted=False) == [RefuseReplica("d/a", OTHER, RefusalReason.NOT_MOUNTED, math.inf)]
    assert judged(serves, mounted=False) == [RefuseReplica("d/b", OTHER, RefusalReason.DELETED)]  # it may have requests


def test_deletions_back_off_and_an_hour_without_one_starts_the_count_again() -> None:
    waits, now, deletions = [], 0.0, NONE
    for _ in range(7):
        deletions = deletions.added(now)
        waits.append(deletions.wait(now))
        now += waits[-1]
    assert waits == [FIRST_BACKOFF, 20.0, 40.0, 80.0, 160.0, LONGEST_BACKOFF, LONGEST_BACKOFF]
    assert deletions.wait(now) == 0.0
    assert deletions.added(now + FORGOTTEN_AFTER) == Deletions(1, now + FORGOTTEN_AFTER)
    assert Deletions(10**9, 0.0).wait(1.0) == LONGEST_BACKOFF - 1.0


def test_a_pod_that_is_to_be_deleted_again_waits_for_the_backoff() -> None:
    found = judged(ReplicaDigest("d/a", OTHER, waits=True), deletions=Deletions(2, 995.0))
    assert found == [RefuseReplica("d/a", OTHER, RefusalReason.BACKING_OFF, 15.0)]


@pytest.mark.parametrize("reason", RefusalReason)
def test_the_message_names_pod_both_digests_what_happens_and_the_remedy(reason: RefusalReason) -> None:
    text = message_of(RefuseReplica("default/m-00001-abc", OTHER, reason), "m-00001", FIRST, "m")
    assert "Pod m-00001-abc loaded sha256:bbbbbbbbbbbb," in text
    assert "m-00001 is recorded with sha256:aaaaaaaaaaaa:" in text
    assert reason in text
    assert "`knodel deploy m --version LABEL`" in text
    assert len(text) < 500
