"""Decide the traffic split of a Model, and make Knative's traffic targets for it. Pure.

"Stable" is the version that last had 100 % of the traffic.

    spec.traffic   spec.canaryTrafficPercent   stable version exists   split
    given          any                         any                     spec.traffic as written
    absent         p                           yes                     latest p, stable the rest
    absent         p                           no                      latest 100
    absent         absent                      yes                     that of the rollout, below
    absent         absent                      no                      latest 100

    rollout                                                            split
    running, at p                                                      candidate p, stable the rest, with tags
    rejected the newest existing version                               stable 100
    spec.rollout is given, and the newest version is neither stable    stable 100, until its rollout begins
    nor promoted
    otherwise                                                          latest 100

"Latest" is the newest version when it is ready. Until then it is the newest ready version that was not rolled back: a
deploy after a rollback must not bring back the rejected version while the new one starts, or when it fails. A version
with traffic counts as ready when its replicas fail. As with Knative's latestReadyRevisionName, a crash moves no
traffic.
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
"""Tags, and so hosts, of the two versions of a running rollout."""


@dataclass(frozen=True, slots=True)
class SplitShare:
    """One part of a split: a revision (None: the latest), its percent, and its tag (may be empty)."""

    revision: str | None
    percent: int
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of a split, beside the spec.

    - `versions`: oldest first.
    - `generation`: the label of the version that the spec describes.
    - `stable`: the revision that last had all the traffic.
    - `refused`: the revisions that were rolled back; `serving`: those with traffic now.
    - `percents`: the percents last declared for the variants, by Configuration.
    - `rollout`: the state of the last rollout.
    """

    versions: tuple[Version, ...] = ()
    generation: str = ""
    stable: str | None = None
    refused: frozenset[str] = frozenset()
    percents: Mapping[str, int] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    rollout: RolloutState | None = None

    def is_usable(self, version: Version) -> bool:
        """Return whether the version is ready, or was ready and has had traffic since.

        In the second case its replicas restart, or a user acts.
        """
        return version.ready or (version.complete and version.revision in self.serving)

    @property
    def newest(self) -> Version | None:
        """Return the version that the spec describes, ready or not; None until it exists."""
        newest = self.versions[-1] if self.versions else None
        return newest if newest is not None and newest.generation == self.generation else None


@dataclass(frozen=True, slots=True)
class Split:
    """Knative's traffic targets. `unknown` are the requested revisions that do not exist."""

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
    """Return the situation that follows from history and last rollout; `by_hand` is the result of `is_by_hand`."""
    newest = {entry.revision: entry for entry in history}
    refused = {name for name, entry in newest.items() if entry.outcome == "rolledback"}
    if rollout is not None and rollout.refuses:
        refused.add(rollout.candidate)
    serving = frozenset(name for name, entry in newest.items() if entry.outcome in ("serving", "promoted"))
    found = Situation(versions, generation, stable_of(history), frozenset(refused), percents, serving, rollout)
    if rollout is None or rollout.phase != "Promoted" or by_hand:
        return found
    promoted_entry = newest.get(rollout.candidate)
    if promoted_entry is not None and promoted_entry.promoted_at:
        return found
    promoted = version_with(versions, rollout.candidate)
    if promoted is None or not found.is_usable(promoted):
        return found
    return replace(found, stable=rollout.candidate)  # it is about to get all traffic: a newer version replaces it


def is_by_hand(spec: ModelSpec) -> bool:
    """Return whether the spec sets the traffic: `traffic` or `canaryTrafficPercent`."""
    return bool(spec.traffic) or spec.canary_traffic_percent is not None


def shares_in_force(spec: ModelSpec, situation: Situation) -> tuple[SplitShare, ...]:
    """Return the split by the tables in the module's docstring."""
    stable = situation.stable
    if stable is None or version_with(situation.versions, stable) is None:
        stable = None
    if spec.traffic:
        return tuple(SplitShare(entry.revision, entry.percent, entry.tag) for entry in spec.traffic)
    if spec.canary_traffic_percent is not None and stable is not None:
        return (SplitShare(None, spec.canary_traffic_percent), SplitShare(stable, ALL - spec.canary_traffic_percent))
    if stable is not None:
        return _shares_of_rollout(spec, situation, stable)
    return (SplitShare(None, ALL),)


def _shares_of_rollout(spec: ModelSpec, situation: Situation, stable: str) -> tuple[SplitShare, ...]:
    state = situation.rollout
    newest = situation.newest.revision if situation.newest is not None else None
    if state is not None and state.runs:
        rest = SplitShare(state.stable, ALL - state.percent, STABLE_TAG if state.percent else "")
        return (SplitShare(state.candidate, state.percent, CANDIDATE_TAG), rest) if state.percent else (rest,)
    if state is not None and state.refuses and situation.versions[-1].revision == state.candidate:
        return (SplitShare(stable, ALL),)
    promoted = state is not None and state.phase == "Promoted" and newest == state.candidate
    if spec.rollout is not None and newest != stable and not promoted:
        return (SplitShare(stable, ALL),)
    return (SplitShare(None, ALL),)


def is_canary(spec: ModelSpec, situation: Situation, revision: str) -> bool:
    """Return whether the revision belongs to a version that is tried beside the stable one; billed as canary.

    Such a version is newer than the stable one, and gets its traffic by a rollout, `canaryTrafficPercent` or `traffic`.
    A plain deploy has no canary: there the new version takes over when it is ready.
    """
    if spec.rollout is None and not is_by_hand(spec):
        return False
    stable = version_with(situation.versions, situation.stable) if situation.stable else None
    version = version_with(situation.versions, revision)
    if stable is None or version is None:
        return False
    return situation.versions.index(version) > situation.versions.index(stable)


def latest_of(situation: Situation) -> Version | None:
    """Return the version that "latest" means now; None while no version was ever ready."""
    if situation.newest is not None and situation.is_usable(situation.newest):
        return situation.newest
    ready = [version for version in situation.versions if situation.is_usable(version)]
    accepted = [version for version in ready if version.revision not in situation.refused]
    usable = accepted or ready
    return usable[-1] if usable else None


def split_in_force(model: Model, situation: Situation) -> Split:
    """Return the targets of a Model's Service or standalone Route (`serving.reconciler.shape` decides which it has)."""
    targets: list[Object] = []
    unknown: list[str] = []
    for share in shares_in_force(model.spec, situation):
        version = version_with(situation.versions, share.revision) if share.revision else latest_of(situation)
        if share.revision and version is None:
            unknown += [share.revision] if share.percent or share.tag else []  # else it may be collected
        elif version is None or (share.revision is None and _is_latest_of_knative(model, situation, version)):
            targets += floating(model, share.percent, share.tag)
        else:
            targets += _pinned(model, situation, share, version)
    return Split(merged(targets), tuple(unknown))


def _is_latest_of_knative(model: Model, situation: Situation, version: Version) -> bool:
    """Return whether the Service's `latestRevision` is this version: the newest ready one of its Configuration."""
    if model.spec.variants:
        return False
    own = names.configuration(model)
    ready = [one for one in situation.versions if situation.is_usable(one) and own in one.revisions]
    return bool(ready) and ready[-1].revision == version.revision


def _pinned(model: Model, situation: Situation, share: SplitShare, version: Version) -> list[Object]:
    """Return targets that name revisions. The share of a version with variants is divided among them."""
    weights = _weights(model, situation, version)
    percents = largest_remainder(share.percent, list(weights.values()))
    targets = [pinned(version.revisions[name], percent) for name, percent in zip(weights, percents, strict=True)]
    return tagged_largest(targets, list(weights.values()), share.tag)


def _weights(model: Model, situation: Situation, version: Version) -> Mapping[str, int]:
    """Return the weight of each Configuration.

    These are the spec's percents if the version has the spec's variants, else the last declared percents, else equal
    weights.
    """
    percents = {variant.name: variant.percent for variant in model.spec.variants}
    if percents and set(percents) == set(version.variants.values()):
        by_variant = {variant: name for name, variant in version.variants.items()}
        return {by_variant[variant]: percent for variant, percent in percents.items()}
    former = {name: situation.percents[name] for name in version.revisions if name in situation.percents}
    return former if former.keys() == version.revisions.keys() else dict.fromkeys(version.revisions, 1)
