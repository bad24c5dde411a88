"""The search for finished jobs: missed ones are recorded once, jobs with an event are duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.base.api import ObjectList
from clusters.base.errors import ClusterError, FieldError, Forbidden, Invalid, NotFound, Unavailable
from clusters.base.objects import Kind, Object
from clusters.net.cloudevents import Event
from eventing.mapping.jobs import JOB_KINDS
from eventing.mapping.mapping import compile_mapping
from eventing.mapping.training import EventMapper
from eventing.objects.ports import EventSource, NewEvent
from eventing.webhook.finished_jobs import AT_ONCE, ATTEMPTS, FinishedJobs, event_of, missed_of, namespaces_of
from tests.eventing.job_objects import KINDS, completed, job_of, running
from tests.eventing.webhook import ListedLedger, event_source
from tests.support.clock import SteppedClock

JOB = KINDS["Job of batch/v1"]
NOW = datetime(2026, 1, 1, 13, tzinfo=UTC)  # an hour after the jobs' end


class Clock:
    """A clock that stands still and records sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        """`NOW`."""
        return NOW

    def monotonic(self) -> float:
        """Unused."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Record the sleep."""
        self.slept.append(seconds)


class ListedJobs:
    """`Lister` of a list; `failures` are raised first, `absent` kinds always."""

    def __init__(
        self, *jobs: Object, failures: Sequence[ClusterError] = (), absent: ClusterError | None = None
    ) -> None:
        self._jobs = jobs
        self._failures = list(failures)
        self._absent = absent
        self.asked: list[tuple[Kind, str | None]] = []

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """Return the jobs of the kind, without apiVersion and kind, as in a list."""
        self.asked.append((kind, namespace))
        if self._absent is not None and kind is not JOB.kind:
            raise self._absent
        if self._failures:
            raise self._failures.pop(0)
        found = [job for job in self._jobs if (job["apiVersion"], job["kind"]) == (kind.api_version, kind.kind)]
        bare = [{name: job[name] for name in ("metadata", "status")} for job in found]
        return ObjectList([job for job in bare if namespace in (None, job["metadata"]["namespace"])], "1")


def source(**fields: Any) -> EventSource:
    """An EventSource for the jobs of namespace `ml`."""
    known = {"namespace": "ml", "source": "https://*", "mapping": compile_mapping({"preset": "job"})}
    return event_source(**{**known, **fields})


def look(lister: ListedJobs, ledger: ListedLedger, *sources: EventSource) -> tuple[FinishedJobs, Clock]:
    """Return the search and its clock."""
    clock = Clock()
    return FinishedJobs(lister, lambda: sources or (source(),), EventMapper(), ledger, clock), clock


async def test_a_completed_job_of_each_kind_is_recorded_and_a_second_look_finds_copies() -> None:
    jobs = [job_of(job, completed(job), uid=f"u-{number}") for number, job in enumerate(JOB_KINDS)]
    ledger = ListedLedger()
    search, _ = look(ListedJobs(*jobs), ledger)

    assert await search.run() == len(JOB_KINDS)
    assert await search.run() == 0
    assert {entry.mapped.id for entry in ledger.entries.values()} == {f"u-{number}" for number in range(len(JOB_KINDS))}


async def test_a_job_whose_event_came_is_a_copy() -> None:
    ledger = ListedLedger()
    job = job_of(JOB, completed(JOB))
    came = Event(id="e-1", source="https://10.96.0.1:443", type="dev.knative.apiserver.resource.update", data=job)
    await ledger.record([NewEvent(source(), came, EventMapper().map(source(), came), NOW)])

    search, _ = look(ListedJobs(job), ledger)

    assert await search.run() == 0
    assert len(ledger.entries) == 1


async def test_a_missed_job_came_when_it_is_recorded_and_not_when_the_look_began() -> None:
    jobs = [job_of(JOB, completed(JOB), uid=f"u-{number}") for number in range(AT_ONCE + 1)]
    ledger, clock = ListedLedger(), SteppedClock(NOW)

    class Slow(ListedJobs):
        async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
            clock.step(100.0)
            return await super().list(kind, namespace, selector)

    kept = ledger.record

    async def record(entries: Sequence[NewEvent]) -> Sequence[Any]:
        assert {entry.received_at for entry in entries} == {clock.now()}
        clock.step(100.0)
        return await kept(entries)

    ledger.record = record  # type: ignore[method-assign]
    search = FinishedJobs(Slow(*jobs), lambda: [source()], EventMapper(), ledger, clock)
    assert await search.run() == len(jobs)


async def test_only_event_sources_for_jobs_are_looked_for() -> None:
    lister = ListedJobs(job_of(JOB, completed(JOB)))
    everything = source(mapping=compile_mapping({"model": "iris", "storageUri": "s3://models/iris/"}))
    search, _ = look(lister, ListedLedger(), source(mapping=None), everything)

    assert await search.run() == 0
    assert lister.asked == []


@pytest.mark.parametrize(
    "job",
    [
        job_of(JOB, running(JOB)),
        job_of(JOB, completed(JOB), annotations=None),
        job_of(JOB, completed(JOB), annotations={"knodel.dev/model": "iris", "knodel.dev/storage-uri": "s3://other/"}),
        job_of(JOB, completed(JOB), annotations={"knodel.dev/model": "Iris", "knodel.dev/storage-uri": "s3://models/"}),
        job_of(JOB, completed(JOB), namespace="other"),
        job_of(JOB, {**completed(JOB), "completionTime": "2025-12-20T12:00:00Z"}),
    ],
    ids=["running", "without annotations", "from elsewhere", "with a bad name", "of another namespace", "long ago"],
)
def test_a_job_is_passed_over_that(job: Object) -> None:
    assert missed_of(source(), JOB.kind, [job], EventMapper(), NOW) == []
    assert missed_of(source(), JOB.kind, [job_of(JOB, completed(JOB))], EventMapper(), NOW)


def test_the_event_of_a_listed_job_is_that_of_an_api_server_source() -> None:
    job = job_of(JOB, completed(JOB))
    event = event_of(JOB.kind, {name: job[name] for name in ("metadata", "status")})
    assert event.data == job
    assert event.subject == "/apis/batch/v1/namespaces/ml/jobs/train-iris-7"


@pytest.mark.parametrize(
    ("models", "namespaces"),
    [(["*"], ["ml"]), (["iris", "other/*"], ["ml", "other"]), (["*/*"], [None]), (["team-?/iris", "x"], [None])],
)
def test_jobs_are_where_their_models_are(models: list[str], namespaces: list[str | None]) -> None:
    assert namespaces_of([source(models=tuple(models))]) == namespaces


@pytest.mark.parametrize(
    ("absent", "words"),
    [(NotFound("no such kind"), "does not have this kind"), (Forbidden("may not list"), "listing them is forbidden")],
)
async def test_kinds_that_are_not_there_or_may_not_be_read_are_passed_over_and_told_in_one_line(
    absent: ClusterError, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    search, clock = look(ListedJobs(job_of(JOB, completed(JOB)), absent=absent), ListedLedger())
    assert await search.run() == 1
    assert clock.slept == []
    [line] = [record.getMessage() for record in caplog.records if "not searched" in record.getMessage()]
    assert words in line
    assert all(job.kind.resource in line for job in JOB_KINDS if job is not JOB)


async def test_no_job_is_looked_for_that_the_ledger_may_have_forgotten() -> None:
    job = job_of(JOB, completed(JOB))
    for oldest, found in ((timedelta(minutes=50), 0), (timedelta(hours=2), 1)):
        search = FinishedJobs(ListedJobs(job), lambda: [source()], EventMapper(), ListedLedger(), Clock(), oldest)
        assert await search.run() == found


async def test_a_cluster_that_does_not_answer_is_asked_again() -> None:
    search, clock = look(ListedJobs(job_of(JOB, completed(JOB)), failures=[Unavailable("away")] * 2), ListedLedger())
    assert await search.run() == 1
    assert clock.slept == [1.0, 2.0]


async def test_a_cluster_that_never_answers_is_given_up() -> None:
    failures = [Unavailable("away")] * ATTEMPTS
    search, clock = look(ListedJobs(job_of(JOB, completed(JOB)), failures=failures), ListedLedger())
    assert await search.run() == 0
    assert sum(clock.slept) < timedelta(minutes=4).total_seconds()


async def test_a_ledger_that_cannot_keep_them_is_asked_again() -> None:
    ledger = ListedLedger()
    ledger.failure = Unavailable("the disk is full")
    search, clock = look(ListedJobs(job_of(JOB, completed(JOB))), ledger)
    assert await search.run() == 0
    assert len(clock.slept) == ATTEMPTS
    ledger.failure = None
    assert await search.run() == 1


@pytest.mark.parametrize(
    "never",
    [
        Invalid("ModelEvent", [FieldError("spec", "it is too large")]),
        NotFound("its namespace is being deleted"),
        Forbidden("its namespace is being deleted"),
    ],
    ids=lambda never: type(never).__name__,
)
async def test_a_job_that_can_never_be_recorded_keeps_no_other_from_it(never: ClusterError) -> None:
    ledger = ListedLedger()
    ledger.answers["u-1"] = never
    jobs = [job_of(JOB, completed(JOB), uid=f"u-{number}") for number in range(3)]
    search, clock = look(ListedJobs(*jobs), ledger)
    assert (await search.run(), clock.slept) == (2, [])
