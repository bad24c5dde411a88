"""Own writes over an informer that lags behind: never an older state than the own write, and the same in the end."""

from __future__ import annotations

from collections import deque

from hypothesis import example, given, settings
from hypothesis import strategies as st

from clusters.base.objects import POD, Key, Object, key_of, owner_reference, uid_of, version_number, version_of
from clusters.runtime.own_writes import FORGET_AFTER, OwnWrites
from tests.support.clock import SteppedClock

NAMES = ("a", "b", "c")
OWNER = owner_reference(POD, {"metadata": {"name": "owner", "uid": "owner"}})


class LaggingCluster:
    """A cluster of a few Pods, and an informer that has observed only the first of its events."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[Key, Object] = {}
        self.observed: dict[Key, Object] = {}
        self.resource_version = ""
        self.late: deque[tuple[int, Key, Object | None]] = deque()

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return what the informer shows."""
        return self.observed.get(Key(namespace, name))

    def put(self, name: str, *, deleting: bool = False) -> Object:
        """Create or change a Pod."""
        self.version += 1
        former = self.objects.get(Key("", name))
        metadata = {
            "name": name,
            "uid": uid_of(former) if former is not None else f"{name}-{self.version}",
            "resourceVersion": str(self.version),
            "ownerReferences": [OWNER],
        }
        obj: Object = {"metadata": metadata | ({"deletionTimestamp": "now"} if deleting else {})}
        self.objects[key_of(obj)] = obj
        self.late.append((self.version, key_of(obj), obj))
        return obj

    def remove(self, name: str) -> Object | None:
        """Delete a Pod at once."""
        gone = self.objects.pop(Key("", name), None)
        if gone is not None:
            self.version += 1
            self.late.append((self.version, key_of(gone), None))
        return gone

    def deliver(self, events: int) -> None:
        """Let the informer observe the next events."""
        for _ in range(min(events, len(self.late))):
            version, key, obj = self.late.popleft()
            self.resource_version = str(version)
            if obj is None:
                self.observed.pop(key, None)
            else:
                self.observed[key] = obj

    def relist(self) -> None:
        """Let the informer list again, which skips all states between."""
        self.late.clear()
        self.observed, self.resource_version = dict(self.objects), str(self.version)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(("own", "own", "unanswered", "other", "own deletion", "other deletion")),
            st.sampled_from(NAMES),
        ),
        st.tuples(st.just("deliver"), st.integers(1, 3)),
        st.tuples(st.sampled_from(("late answer", "relist")), st.none()),
    ),
    max_size=25,
)


class Scene:
    """A cluster, the own writes over its informer, and their answers."""

    def __init__(self) -> None:
        self.cluster = LaggingCluster()
        self.own = OwnWrites(self.cluster, SteppedClock())
        self.unanswered = deque[Object]()
        self.answered: dict[Key, int] = {}  # version of the newest answer for each Pod
        self.deleted: set[str] = set()  # uids

    def write(self, step: str, name: str) -> None:
        """Let this process, or another one, change or delete a Pod."""
        match step:
            case "own":
                self.answer(self.cluster.put(name))
            case "unanswered":
                self.unanswered.append(self.cluster.put(name))
            case "own deletion" if (gone := self.cluster.remove(name)) is not None:
                self.own.record_deletion(gone)
                self.deleted.add(uid_of(gone))
            case "other":
                self.cluster.put(name)
            case "other deletion":
                self.cluster.remove(name)

    def answer(self, obj: Object) -> None:
        """Let the answer of a write arrive."""
        self.own.record(obj)
        self.answered[key_of(obj)] = max(version_number(version_of(obj)), self.answered.get(key_of(obj), 0))

    def proceed(self, step: str, subject: str | int | None) -> None:
        """Do one step."""
        if isinstance(subject, str):
            self.write(step, subject)
        elif isinstance(subject, int):
            self.cluster.deliver(subject)
        elif step == "relist":
            self.cluster.relist()
        elif self.unanswered:
            self.answer(self.unanswered.popleft())

    def check(self, key: Key) -> None:
        """Compare a read with the informer's state and the last answer."""
        own, shown, found = self.own, self.cluster.observed.get(key), self.own.get(key.name)
        least, reached = self.answered.get(key, 0), version_number(self.cluster.resource_version)
        if reached >= least:
            assert found == shown
        else:
            assert found is not None
            assert version_number(version_of(found)) >= least
        if shown is not None:
            assert own.latest(shown) == found
            assert own.is_outdated(key, version_of(shown)) == (found != shown)
            assert own.is_deleting(shown) == (uid_of(shown) in self.deleted)
        is_shown = shown is not None and found is not None and uid_of(shown) == uid_of(found)
        assert (key in map(key_of, own.created("owner"))) == (reached < least and not is_shown)


@settings(max_examples=400)
@given(steps=STEPS)
@example(  # deleted before the informer has shown it
    steps=[("own", "a"), ("own", "b"), ("own deletion", "b"), ("deliver", 1), ("own deletion", "a"), ("deliver", 1)]
)
def test_no_read_is_older_than_the_own_write_and_all_are_forgotten_in_the_end(
    steps: list[tuple[str, str | int | None]],
) -> None:
    scene = Scene()
    for step, subject in steps:
        scene.proceed(step, subject)
        for name in NAMES:
            scene.check(Key("", name))
    scene.cluster.deliver(len(scene.cluster.late))
    assert scene.own.unseen() == [] == scene.own.created("owner")
    for name in NAMES:
        shown = scene.cluster.observed.get(Key("", name))
        assert scene.own.get(name) == shown == scene.cluster.objects.get(Key("", name))


def test_a_write_that_the_informer_never_shows_is_forgotten() -> None:
    cluster, clock = LaggingCluster(), SteppedClock()
    own = OwnWrites(cluster, clock)
    pod = cluster.put("a")
    own.record(pod)
    clock.step(FORGET_AFTER - 0.1)
    assert (own.get("a"), own.created("owner")) == (pod, [pod])
    clock.step(0.2)
    assert (own.get("a"), own.created("owner")) == (None, [])


def test_a_deletion_that_the_informer_never_shows_is_forgotten() -> None:
    cluster, clock = LaggingCluster(), SteppedClock()
    own = OwnWrites(cluster, clock)
    pod = cluster.put("a")
    cluster.relist()
    own.record_deletion(pod)
    assert own.is_deleting(pod)
    clock.step(FORGET_AFTER + 0.1)
    assert not own.is_deleting(pod)


def test_the_memory_of_writes_is_bounded_by_those_that_the_informer_does_not_show() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    for number in range(100):
        own.record(cluster.put(f"pod-{number}"))
        cluster.relist()
    assert len(own._written) == 1


def test_the_memory_of_deletions_is_bounded_by_those_that_the_informer_does_not_show() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    for _ in range(100):
        cluster.put("a")
        cluster.relist()
        gone = cluster.remove("a")
        assert gone is not None
        own.record_deletion(gone)
        cluster.relist()
    assert len(own._deleted) == 1


def test_an_object_made_again_under_the_same_name_is_neither_hidden_nor_deleted() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    first = cluster.put("a")
    own.record(first)
    cluster.remove("a")
    own.record_deletion(first)
    second = cluster.put("a")
    cluster.relist()
    assert own.get("a") == own.latest(second) == second
    assert not own.is_deleting(second)


def test_a_newer_state_takes_precedence_even_before_the_version_of_the_list_is_known() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    own.record(cluster.put("a"))
    newer = cluster.put("a")
    cluster.observed = dict(cluster.objects)  # as while an informer handles the objects of a list
    assert own.get("a") == own.latest(newer) == newer


def test_a_pod_that_is_shown_as_deleting_is_so_without_a_record() -> None:
    cluster = LaggingCluster()
    assert OwnWrites(cluster, SteppedClock()).is_deleting(cluster.put("a", deleting=True))


def test_the_older_of_two_answers_does_not_replace_the_newer_one() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    first, second = cluster.put("a"), cluster.put("a")
    own.record(second)
    own.record(first)
    assert own.get("a") == second


def test_the_record_of_an_object_that_is_gone_can_be_discarded() -> None:
    cluster = LaggingCluster()
    own = OwnWrites(cluster, SteppedClock())
    own.record(cluster.put("a"))
    own.discard(Key("", "a"))
    assert own.get("a") is None
