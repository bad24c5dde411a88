"""Which split of the traffic is in force, and Knative's traffic targets for it. Pure.

    spec.traffic   spec.canaryTrafficPercent   somebody had 100 % once   split
    given          any                         any                       spec.traffic as written
    absent         p                           yes                       latest p, who last had 100 % the rest
    absent         p                           no                        latest 100
    absent         absent                      yes                       that of the rollout, below
    absent         absent                      no                        latest 100

    rollout                                                              split, who last had 100 % being "stable"
    running, at p                                                        candidate p, stable the rest, with tags
    refused the newest version that there is                             stable 100
    spec.rollout, and the newest version is neither the stable one       stable 100, until its rollout begins
    nor one that was promoted
    else                                                                 latest 100

"Latest" is the newest version when it is ready; until then the newest ready one, but not one that was rolled back: a
deploy after a rollback must not bring back what was refused while it starts, or when it fails. A version that has
traffic stays as good as ready when its replicas fail: as with Knative's latestReadyRevisionName, a crash moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clusters.base.objects import Object
from serving.makers import names
from serving.makers.targets import ALL, floating, largest_remainder, merged, pinned, tagged_largest
from serving.reconciler.rollout.history import stable_of
from serving.reconciler.rollout.state import RolloutState
from serving.reconciler.rollout.versions import Version, version_with
from serving.types.faults import RESERVED_TAGS
from serving.types.model import HistoryEntry, Model, ModelSpec

STABLE_TAG, CANDIDATE_TAG = RESERVED_TAGS
"""Hosts of the two versions of a rollout while it runs."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One part of a split as people say it: a revision (None: the latest), its percent, its tag (or none)."""

    revision: str | None
    percent: int
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a split depends on beside the spec.

    `versions` oldest first; `generation` is the label of the version that the spec asks for; `stable` is the revision
    that last had all the traffic; `refused` are those that were rolled back, `serving` those that have traffic now;
    `percents` are those last declared for the variants, by Configuration; `rollout` is where the last one stands.
    """

    versions: tuple[Version, ...] = ()
    generation: str = ""
    stable: str | None = None
    refused: frozenset[str] = frozenset()
    percents: Mapping[str, int] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    rollout: RolloutState | None = None

    def is_usable(self, version: Version) -> bool:
        """Whether the version is ready, or was and has traffic since: then its replicas come back, or a person acts."""
        return version.ready or (version.complete and version.revision in self.serving)

    @property
    def newest(self) -> Version | None:
        """The version that the spec asks for, ready or not; None while it is not made."""
        newest = self.versions[-1] if self.versions else None
        return newest if newest is not None and newest.generation == self.generation else None


@dataclass(frozen=True, slots=True)
class Split:
    """Knative's traffic targets; `unknown` are the revisions that were asked for and do not exist."""

    targets: tuple[Object, ...]
    unknown: tuple[str, ...] = ()


def situation_of(
    versions: tuple[Version, ...],
    generation: str,
    history: Sequence[HistoryEntry],
    percents: Mapping[str, int] = MappingProxyType({}),
    rollout: RolloutState | None = None,
    *,
    by_hand: bool = False,
) -> Situation:
    """The situation that `history` tells of, and where its last rollout stands; `by_hand` as `is_by_hand` says."""
    newest = {entry.revision: entry for entry in history}
    refused = {name for name, entry in newest.items() if entry.outcome == "rolledback"}
    if rollout is not None and rollout.refuses:
        refused.add(rollout.candidate)
    serving = frozenset(name for name, entry in newest.items() if entry.outcome in ("serving", "promoted"))
    found = Situation(versions, generation, stable_of(history), frozenset(refused), percents, serving, rollout)
    if rollout is None or rollout.phase != "Promoted" or by_hand or _had_all(newest.get(rollout.candidate)):
        return found
    promoted = version_with(versions, rollout.candidate)
    if promoted is None or not found.is_usable(promoted):
        return found
    return replace(found, stable=rollout.candidate)  # it is about to have all: a version that comes now follows it


def is_by_hand(spec: ModelSpec) -> bool:
    """Whether a split by hand is in force."""
    return bool(spec.traffic) or spec.canary_traffic_percent is not None


def wishes_in_force(spec: ModelSpec, situation: Situation) -> tuple[Wish, ...]:
    """The tables of the module's docstring."""
    stable = situation.stable
    if stable is None or version_with(situation.versions, stable) is None:
        stable = None
    if spec.traffic:
        return tuple(Wish(entry.revision, entry.percent, entry.tag) for entry in spec.traffic)
    if spec.canary_traffic_percent is not None and stable is not None:
        return (Wish(None, spec.canary_traffic_percent), Wish(stable, ALL - spec.canary_traffic_percent))
    if stable is not None:
        return _wishes_of_rollout(spec, situation, stable)
    return (Wish(None, ALL),)


def _wishes_of_rollout(spec: ModelSpec, situation: Situation, stable: str) -> tuple[Wish, ...]:
    state = situation.rollout
    newest = situation.newest.revision if situation.newest is not None else None
    if state is not None and state.runs:
        rest = Wish(state.stable, ALL - state.percent, STABLE_TAG if state.percent else "")
        return (Wish(state.candidate, state.percent, CANDIDATE_TAG), rest) if state.percent else (rest,)
    if state is not None and state.refuses and situation.versions[-1].revision == state.candidate:
        return (Wish(stable, ALL),)
    promoted = state is not None and state.phase == "Promoted" and newest == state.candidate
    if spec.rollout is not None and newest != stable and not promoted:
        return (Wish(stable, ALL),)
    return (Wish(None, ALL),)


def _had_all(entry: HistoryEntry | None) -> bool:
    return entry is not None and bool(entry.promoted_at)


def latest_of(situation: Situation) -> Version | None:
    """The version that "latest" means now; None while there is none that was ever ready."""
    if situation.newest is not None and situation.is_usable(situation.newest):
        return situation.newest
    ready = [version for version in situation.versions if situation.is_usable(version)]
    accepted = [version for version in ready if version.revision not in situation.refused]
    usable = accepted or ready
    return usable[-1] if usable else None


def split_in_force(model: Model, situation: Situation) -> Split:
    """The targets of the Service (without variants) or of the Route (with variants) of a Model."""
    wishes = wishes_in_force(model.spec, situation)
    targets: list[Object] = []
    unknown: list[str] = []
    for wish in wishes:
        version = version_with(situation.versions, wish.revision) if wish.revision else latest_of(situation)
        if wish.revision and version is None:
            unknown += [wish.revision] if wish.percent or wish.tag else []  # no target kept it from collection
        elif version is None or (wish.revision is None and _knative_agrees(model, situation, version)):
            targets += floating(model, wish.percent, wish.tag)
        else:
            targets += _pinned(model, situation, wish, version)
    return Split(merged(targets), tuple(unknown))


def _knative_agrees(model: Model, situation: Situation, version: Version) -> bool:
    """Whether Knative's `latestRevision` of the Service would be this version: the newest ready one of its own."""
    if model.spec.variants:
        return False
    own = names.configuration(model)
    ready = [one for one in situation.versions if situation.is_usable(one) and own in one.revisions]
    return bool(ready) and ready[-1].revision == version.revision


def _pinned(model: Model, situation: Situation, wish: Wish, version: Version) -> list[Object]:
    """Targets that name revisions; a version with variants is shared among them."""
    weights = _weights(model, situation, version)
    shares = largest_remainder(wish.percent, list(weights.values()))
    targets = [pinned(version.revisions[name], share) for name, share in zip(weights, shares, strict=True)]
    return tagged_largest(targets, list(weights.values()), wish.tag)


def _weights(model: Model, situation: Situation, version: Version) -> Mapping[str, int]:
    """Each Configuration's weight: the spec's percents for a version of its variants, else the last, else all alike."""
    percents = {variant.name: variant.percent for variant in model.spec.variants}
    if percents and set(percents) == set(version.variants.values()):
        by_variant = {variant: name for name, variant in version.variants.items()}
        return {by_variant[variant]: percent for variant, percent in percents.items()}
    former = {name: situation.percents[name] for name in version.revisions if name in situation.percents}
    return former if former.keys() == version.revisions.keys() else dict.fromkeys(version.revisions, 1)
