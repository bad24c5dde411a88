"""Plan the replicas of each version in a rollout, and the traffic that the candidate's replicas can serve. Pure.

`maxSurge` limits both versions together to the replicas at the beginning of the step (`stood`) plus the surge. So the
candidate's replicas start as the stable version's stop, in turns, and the traffic follows them:

    4 replicas, surge 1, from 10 % to 50 %   stable  candidate  percent
    the candidate wants 2, has no room            4          1       10
    one of four replicas serves a quarter         4          1       25
    the stable version needs 3 for the rest       3          1       25
    the candidate has room                        3          2       25
    the step is reached                           3          2       50
    the stable version needs 2                    2          2       50

Between steps, when the autoscaler's averages contain only the present traffic (`RolloutState.steady`), requests
determine the replicas again, for each version up to `maxReplicas`. `minReplicas`, also of `schedules`, is divided by
percent. `maxSurge` limits only the turns. With fewer than two replicas there are no turns. With variants, all of this
applies to each Configuration separately.

A replica may take long to start on the way to a step. Once the averages contain only the present traffic, the stable
version may have one replica more than the rest of the traffic needs. If load makes the autoscaler use it, `stood`
grows: the limits of both versions follow the load, one replica at a time.

Before the first step the stable version has all the traffic, however long the candidate loads. It scales with load, and
`stood` is the number that it reaches. Only without a surge it is limited from the start: the candidate's first replica
needs the place of one of its replicas.

`keepWarm` applies to the stable version from the first step on: its last replica stays that long without a request.
When the stable version gets all traffic back at once, `stood` replicas are requested at once, before any request waits.
The replicas of a rejected candidate stop when it has no traffic at the gateway any more. So do those of every other
version: the stable version may need their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaler.types import AUTO
from serving.reconciler.rollout.history import Shares
from serving.reconciler.rollout.schedule import target_of
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import RolloutState
from serving.reconciler.rollout.versions import Version, version_with
from serving.types.rollout import ALL, Rollout
from serving.types.scaling import Scaling

LEAST_TO_SHARE = 2
"""Replicas needed to take turns: a single one stays until the other version's replica is ready."""
LEAST_IDLE = 1.0
"""s: the smallest value in a scaling policy."""
LEAST_AUTO = 60.0
"""s: the smallest time that `scaleToZeroAfter: auto` results in (`autoscaler.scaling`)."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The numbers of desired and ready replicas of one revision."""

    desired: int = 0
    ready: int = 0

    @property
    def held(self) -> int:
        """Return the number of replicas that the revision occupies now."""
        return max(self.desired, self.ready)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The `scaling` of each revision that differs from the spec's; `reach` and `standing` as in `RolloutInputs`."""

    scaling: Mapping[str, Scaling] = field(default_factory=dict)
    reach: int = ALL
    standing: Mapping[str, int] = field(default_factory=dict)


AS_SPECIFIED = Capacity()


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both versions in one Configuration; `seen` is the candidate's percent as observed at the gateway."""

    stood: int
    surge: int
    target: int
    seen: int
    stable: Replicas
    candidate: Replicas

    @property
    def wanted(self) -> int:
        """Return the candidate's replicas for the step; the stable version keeps one place."""
        return max(1, min(_share(self.stood, self.target), self.stood + self.surge - 1))

    @property
    def most_stable(self) -> int:
        """Return the replicas for the rest of the traffic; without a surge one less while the candidate waits."""
        needed = _share(self.stood, ALL - self.seen)
        if not self.surge and self.candidate.ready < self.wanted:
            waiting = self.candidate.held <= self.candidate.ready
            needed = min(needed, self.stood - self.candidate.held - waiting)
        return max(1, needed)

    @property
    def most_candidate(self) -> int:
        """Return the wanted replicas for which there is room; never less than are ready."""
        return max(1, self.candidate.ready, min(self.wanted, self.stood + self.surge - self.stable.held))

    @property
    def reach(self) -> int:
        """Return the percent that the candidate's ready replicas can serve.

        Without a surge this is 100 when only one place is left to the stable version.
        """
        if self.candidate.ready >= self.stood + min(self.surge - 1, 0):
            return ALL
        return min(ALL, -(-ALL * max(1, self.candidate.ready) // self.stood))


def plan_capacity(
    rule: Rollout, spec: Scaling, situation: Situation, shares: Shares, replicas: Mapping[str, Replicas]
) -> Capacity:
    """Return the capacity for the present state of the rollout, or the spec's without one; `replicas` by revision."""
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
    """Return the scaling of both revisions of a pair, by their names."""
    most, exactly = min(pair.most_stable, spec.max_replicas), min(pair.most_candidate, spec.max_replicas)
    coming = replace(spec, min_replicas=exactly, max_replicas=exactly, schedules=())
    if not state.percent and pair.surge:
        return {theirs: replace(warm, min_replicas=spec.min_replicas if state.steady else pair.stood), ours: coming}
    if state.steady and state.percent and not state.is_on_its_way:
        return {theirs: _part(warm, ALL - state.percent), ours: _part(spec, state.percent)}
    more = state.steady and pair.surge and _grown(pair.stood, most + 1, ALL - pair.seen, pair.surge)
    called = min(most + 1, spec.max_replicas) if more else most
    least = min(spec.min_replicas, most)
    schedules = tuple(replace(one, min_replicas=min(one.min_replicas, most)) for one in spec.schedules)
    stays = replace(warm, max_replicas=called, min_replicas=least, schedules=schedules)
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


def _grown(stood: int, held: int, percent: int, surge: int) -> int:
    """Return the replicas for all traffic, extrapolated from the `held` ones for this percent; 0 for a large leap.

    With less than half of the traffic, one replica corresponds to more than two in total: rounded up, it is a poor
    estimate of the load.
    """
    called = (held - 1) * ALL // percent + 1 if held and percent else 0
    leaps = percent < ALL // 2 and called > stood + max(2, surge)
    return 0 if leaps else called


def _stood(spec: Scaling, state: RolloutState, name: str, held: int = 0) -> int:
    """Return a Configuration's replicas at the beginning of the step, within the present limits of the spec."""
    return min(max(state.stood.get(name, 0), spec.min_replicas, held), spec.max_replicas)


def plan_return(spec: Scaling, situation: Situation) -> dict[str, Scaling]:
    """Return the scaling of the stable version while it gets its traffic back; empty when that has settled."""
    state = situation.rollout
    if state is None or state.phase != "RolledBack" or state.steady:
        return {}
    stable = _version(situation, state.stable)
    names = stable.revisions.items() if stable is not None else ()
    return {revision: replace(spec, min_replicas=_stood(spec, state, name)) for name, revision in names}


def _after(rule: Rollout, spec: Scaling, situation: Situation, shares: Shares) -> dict[str, Scaling]:
    """Return the scaling after a rollout: the former version stays warm, a rejected one without traffic stops."""
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
    """Return the scaling of versions without traffic and without a part in the running rollout."""
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
    """Return the scaling of a version with this percent of the traffic: its part of all minimum replica counts."""
    shared = (replace(one, min_replicas=_share(one.min_replicas, percent)) for one in spec.schedules)
    least = _share(spec.min_replicas, percent)
    return replace(spec, min_replicas=least, schedules=tuple(one for one in shared if one.min_replicas))


def _version(situation: Situation, revision: str | None) -> Version | None:
    return version_with(situation.versions, revision) if revision else None


def _standing(stable: Version | None, candidate: Version | None, replicas: Mapping[str, Replicas]) -> dict[str, int]:
    """Return the replicas by Configuration; the candidate's first replica is surge and does not count."""
    found: dict[str, int] = {}
    for version, extra in ((stable, 0), (candidate, 1)):
        for name, revision in version.revisions.items() if version is not None else ():
            held = replicas.get(revision, Replicas()).held
            found[name] = found.get(name, 0) + max(0, held - extra)
    return found


def _share(total: int, percent: int) -> int:
    """Return the replicas for this percent of the traffic, rounded up."""
    return -(-total * percent // ALL)
