"""How many replicas each version of a rollout may have, and how much traffic those of the candidate can take. Pure.

`maxSurge` bounds both versions together at the replicas that stood when the step began, plus the surge. So the
candidate's replicas come as the stable version's go, in turns, and the traffic follows them:

    stood 4, surge 1, from 10 % to 50 %      stable  candidate  percent
    the candidate wants 2, has no room            4          1       10
    one of four replicas takes a quarter          4          1       25
    the stable version needs 3 for the rest       3          1       25
    the candidate has room                        3          2       25
    the step is reached                           3          2       50
    the stable version needs 2                    2          2       50

Between the steps, once the averages of the autoscaler know nothing of the traffic before (`RolloutState.steady`),
requests decide again, for each version up to `maxReplicas`, and `minReplicas`, that of `schedules` too, is shared by
percent: `maxSurge` bounds the turns alone. Where less than two replicas stood there is nothing to take turns with. With
variants all of this holds for each Configuration by itself.

On the way to a step a replica may be long in coming. Once the averages know nothing of the part before, the stable
version may have one more than the rest of the traffic needs, and whether it takes that one requests decide. If it does,
so many stood: the bounds of both versions follow the load, one replica after the other.

Before the first step the stable version has all the traffic, however long the candidate loads: it grows as requests
call for it, and what it has then is what stood. Only without a surge it is held from the start: the candidate's first
replica needs the place of one of its own.

`keepWarm` holds for the stable version from the first step on: its last replica stays that long without a request. When
it gets its traffic back at once, as many replicas as stood come back at once, before any request waits. A refused
candidate's replicas leave once the gateway gives it nothing any more, those of every other version likewise: the stable
version may need their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaler.schedules import Schedule
from autoscaler.types import AUTO
from serving.reconciler.rollout.history import Shares
from serving.reconciler.rollout.schedule import target_of
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import RolloutState
from serving.reconciler.rollout.versions import Version, version_with
from serving.types.model import Scaling
from serving.types.rollout import ALL, Rollout

LEAST_TO_SHARE = 2
"""Replicas: one alone stays until the other version's one is there."""
LEAST_IDLE = 1.0
"""s (the least that a policy may say)."""
LEAST_AUTO = 60.0
"""s: what `scaleToZeroAfter: auto` comes to at least (`autoscaler.scaling`)."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Of one revision: how many there are to be, and how many are ready."""

    desired: int = 0
    ready: int = 0

    @property
    def held(self) -> int:
        """Places that it takes now."""
        return max(self.desired, self.ready)


@dataclass(frozen=True, slots=True)
class Capacity:
    """`scaling` of each revision whose policy is not the spec's; `reach` and `standing` as in `sight.Sight`."""

    scaling: Mapping[str, Scaling] = field(default_factory=dict)
    reach: int = ALL
    standing: Mapping[str, int] = field(default_factory=dict)


AS_SPECIFIED = Capacity()


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both versions in one Configuration; `seen` is the candidate's percent at the gateway."""

    stood: int
    surge: int
    target: int
    seen: int
    stable: Replicas
    candidate: Replicas

    @property
    def wanted(self) -> int:
        """Replicas of the candidate for the step; one place is left to the stable version."""
        return max(1, min(_share(self.stood, self.target), self.stood + self.surge - 1))

    @property
    def most_stable(self) -> int:
        """What the rest of the traffic needs; without a surge one less while the candidate waits for its place."""
        needed = _share(self.stood, ALL - self.seen)
        if not self.surge and self.candidate.ready < self.wanted:
            waiting = self.candidate.held <= self.candidate.ready
            needed = min(needed, self.stood - self.candidate.held - waiting)
        return max(1, needed)

    @property
    def most_candidate(self) -> int:
        """As many as are wanted and there is room for; never less than are ready."""
        return max(1, self.candidate.ready, min(self.wanted, self.stood + self.surge - self.stable.held))

    @property
    def reach(self) -> int:
        """Percent that the ready replicas take; all of it without a surge once one place alone is not theirs."""
        if self.candidate.ready >= self.stood + min(self.surge - 1, 0):
            return ALL
        return min(ALL, -(-ALL * max(1, self.candidate.ready) // self.stood))


def plan_capacity(
    rule: Rollout, spec: Scaling, situation: Situation, shares: Shares, replicas: Mapping[str, Replicas]
) -> Capacity:
    """The capacity for the rollout as it stands; `replicas` by revision. Without one the spec decides everything."""
    state = situation.rollout
    if state is None or not state.runs:
        stable = _version(situation, situation.stable)
        return Capacity(_after(rule, spec, situation, shares), ALL, _standing(stable, None, replicas))
    stable, candidate = _version(situation, state.stable), _version(situation, state.candidate)
    standing = _standing(stable, candidate if state.percent else None, replicas)
    if stable is None or candidate is None:
        return Capacity(standing=standing)
    scaling, reach = _others(spec, situation, shares, replicas) | _warm(rule, spec, stable), ALL
    for name in sorted(stable.revisions.keys() & candidate.revisions.keys()):
        theirs, ours = stable.revisions[name], candidate.revisions[name]
        pair = _pair(rule, spec, state, name, shares.get(candidate.revision, 0), replicas, theirs, ours)
        if state.is_on_its_way:
            standing[name] = pair.stood
        if pair.stood < LEAST_TO_SHARE:
            continue
        scaling |= _shared(spec, state, scaling[theirs], pair, theirs, ours)
        reach = min(reach, pair.reach)
    return Capacity(scaling, reach, standing)


def _shared(
    spec: Scaling, state: RolloutState, warm: Scaling, pair: _Pair, theirs: str, ours: str
) -> dict[str, Scaling]:
    """The scaling of both revisions of a pair, by their names."""
    most, exactly = min(pair.most_stable, spec.max_replicas), min(pair.most_candidate, spec.max_replicas)
    coming = replace(spec, min_replicas=exactly, max_replicas=exactly, schedules=())
    if not state.percent and pair.surge:
        return {theirs: replace(warm, min_replicas=spec.min_replicas if state.steady else pair.stood), ours: coming}
    if state.steady and state.percent and not state.is_on_its_way:
        return {theirs: _part(warm, ALL - state.percent), ours: _part(spec, state.percent)}
    more = state.steady and pair.surge and _grown(pair.stood, most + 1, ALL - pair.seen, pair.surge)
    called = min(most + 1, spec.max_replicas) if more else most
    least = min(spec.min_replicas, most)
    stays = replace(warm, max_replicas=called, min_replicas=least, schedules=_at_most(spec.schedules, most))
    return {theirs: stays, ours: coming}


def _pair(
    rule: Rollout,
    spec: Scaling,
    state: RolloutState,
    name: str,
    share: int,
    replicas: Mapping[str, Replicas],
    theirs: str,
    ours: str,
) -> _Pair:
    stable, seen = replicas.get(theirs, Replicas()), min(state.percent, share)
    before = _stood(spec, state, name)
    grown = _grown(before, stable.held, ALL - seen, rule.max_surge) if state.follows_load else 0
    return _Pair(
        stood=_stood(spec, state, name, grown),
        surge=rule.max_surge,
        target=target_of(rule, state),
        seen=seen,
        stable=stable,
        candidate=replicas.get(ours, Replicas()),
    )


def _called(held: int, percent: int) -> int:
    """The least number of replicas of which this part of the traffic has so many."""
    return (held - 1) * ALL // percent + 1 if held and percent else 0


def _grown(stood: int, held: int, percent: int, surge: int) -> int:
    """What the replicas held for this part of the traffic call for in all; 0 where that is a leap.

    Of less than half of the traffic one replica is worth more than two of all: rounded up, it says little of the load.
    """
    called = _called(held, percent)
    leaps = percent < ALL // 2 and called > stood + max(2, surge)
    return 0 if leaps else called


def _stood(spec: Scaling, state: RolloutState, name: str, held: int = 0) -> int:
    """Replicas of a Configuration that are counted from, within what the spec says now."""
    return min(max(state.stood.get(name, 0), spec.min_replicas, held), spec.max_replicas)


def plan_return(spec: Scaling, situation: Situation) -> dict[str, Scaling]:
    """What the stable version has at least while it gets its traffic back; nothing once that has settled."""
    state = situation.rollout
    if state is None or state.phase != "RolledBack" or state.steady:
        return {}
    stable = _version(situation, state.stable)
    names = stable.revisions.items() if stable is not None else ()
    return {revision: replace(spec, min_replicas=_stood(spec, state, name)) for name, revision in names}


def _after(rule: Rollout, spec: Scaling, situation: Situation, shares: Shares) -> dict[str, Scaling]:
    """Once a rollout has ended: the version before stays warm, a refused one goes when it has nothing any more."""
    state = situation.rollout
    if state is None:
        return {}
    if state.phase == "Promoted":
        before = _version(situation, state.stable)
        return _warm(rule, spec, before) if before is not None else {}
    back, refused = plan_return(spec, situation), _version(situation, state.candidate)
    if refused is None or shares.get(refused.revision, 0):
        return back
    return dict.fromkeys(refused.revisions.values(), _gone(spec)) | back


def _others(
    spec: Scaling, situation: Situation, shares: Shares, replicas: Mapping[str, Replicas]
) -> dict[str, Scaling]:
    """Versions that have neither traffic nor a part in the rollout that runs, as one that it superseded."""
    state = situation.rollout
    idle = [
        revision
        for version in situation.versions
        if state is not None and state.stable not in version and state.candidate not in version
        for revision in version.revisions.values()
        if not shares.get(version.revision, 0) and replicas.get(revision, Replicas()).held
    ]
    return dict.fromkeys(idle, _gone(spec))


def _gone(spec: Scaling) -> Scaling:
    return replace(spec, min_replicas=0, scale_to_zero_after=LEAST_IDLE, schedules=())


def _warm(rule: Rollout, spec: Scaling, version: Version) -> dict[str, Scaling]:
    longer = rule.keep_warm > (LEAST_AUTO if spec.scale_to_zero_after == AUTO else spec.scale_to_zero_after)
    warm = replace(spec, scale_to_zero_after=rule.keep_warm if longer else spec.scale_to_zero_after)
    return dict.fromkeys(version.revisions.values(), warm)


def _part(spec: Scaling, percent: int) -> Scaling:
    """The scaling of a version with this part of the traffic: of the least replicas, by the clock too, its share."""
    shared = (replace(one, min_replicas=_share(one.min_replicas, percent)) for one in spec.schedules)
    least = _share(spec.min_replicas, percent)
    return replace(spec, min_replicas=least, schedules=tuple(one for one in shared if one.min_replicas))


def _at_most(schedules: tuple[Schedule, ...], most: int) -> tuple[Schedule, ...]:
    return tuple(replace(one, min_replicas=min(one.min_replicas, most)) for one in schedules)


def _version(situation: Situation, revision: str | None) -> Version | None:
    return version_with(situation.versions, revision) if revision else None


def _standing(stable: Version | None, candidate: Version | None, replicas: Mapping[str, Replicas]) -> dict[str, int]:
    """Replicas by Configuration; of the candidate's the first is surge."""
    found: dict[str, int] = {}
    for version, extra in ((stable, 0), (candidate, 1)):
        for name, revision in version.revisions.items() if version is not None else ():
            held = replicas.get(revision, Replicas()).held
            found[name] = found.get(name, 0) + max(0, held - extra)
    return found


def _share(total: int, percent: int) -> int:
    """The replicas for that part of the traffic, rounded up."""
    return -(-total * percent // ALL)
