"""Group the Revisions of a Model into versions. Pure.

Without variants a version is one Revision. With variants it has one Revision in each variant's Configuration, all with
the same label `knodel.dev/generation`. The first of them by name identifies the whole version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clusters.base.objects import (
    LABEL_CONFIGURATION,
    LABEL_CONFIGURATION_GENERATION,
    Object,
    annotations_of,
    condition_of,
    is_deleting,
    is_true,
    labels_of,
    name_of,
)
from serving.types.annotations import (
    ANNOTATION_DIGEST,
    ANNOTATION_STORAGE_URI,
    ANNOTATION_VARIANTS,
    ANNOTATION_VERSION,
    LABEL_GENERATION,
    LABEL_VARIANT,
)

PASSING = frozenset({"Unschedulable"})
"""Reasons with which Knative reports a Revision as failed at once, although they may end by themselves: a node may be
added or become free. At the deadline Knative reports the failure with another reason."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a version is not ready. A `final` failure stays, even if the replicas become ready again."""

    revision: str
    reason: str
    message: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a Model.

    - `revision` identifies the version. `revisions` and `variants` are its Revisions and variants, by Configuration.
    - `held`: later replicas must load the same bytes as the first one. A version with variants is not `ready` before,
      since its variants may have loaded different bytes.
    - `complete`: every variant has its Revision. False until all are created, and after Knative collected one.
    """

    revision: str
    revisions: Mapping[str, str]
    variants: Mapping[str, str]
    generation: str
    complete: bool
    ready: bool
    failure: Failure | None
    version: str
    digest: str
    storage_uri: str
    held: bool = True

    def __contains__(self, revision: str) -> bool:
        return revision in self.revisions.values()


def versions_of(
    revisions: Iterable[Object],
    known: Sequence[str] = (),
    loaded: Mapping[str, str] = MappingProxyType({}),
    unheld: Collection[str] = (),
) -> tuple[Version, ...]:
    """Return all versions, oldest first. `known` (from the history) orders those created in the same second.

    `loaded` are the digests that revisions without a digest in their spec loaded first. `unheld` are those of these
    revisions whose later replicas may still load other bytes.
    """
    groups: dict[str, dict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for revision in revisions:
        labels = labels_of(revision)
        if LABEL_CONFIGURATION in labels and not is_deleting(revision):
            generation = labels.get(LABEL_GENERATION) or name_of(revision)
            groups[generation][labels[LABEL_CONFIGURATION]].append(revision)
    rank = {revision: index for index, revision in reversed(list(enumerate(known)))}
    found = [
        (_age(members, rank), _version(generation, members, loaded, unheld))
        for generation, by_configuration in groups.items()
        for members in _occurrences(by_configuration)
    ]
    return tuple(version for _, version in sorted(found, key=lambda item: item[0]))


def newest_last(versions: Sequence[Version], latest: Collection[str]) -> tuple[Version, ...]:
    """Return the versions with that of the revisions `latest` at the end.

    `latest` are the last Revisions of the Configurations of the spec's version. That version counts as the newest, but
    may be older than others: a spec that returns to former variants reuses their existing Revisions.
    """
    newest = [version for version in versions if set(version.revisions.values()) <= set(latest)]
    return (*(version for version in versions if version not in newest), *newest)


def version_with(versions: Iterable[Version], revision: str) -> Version | None:
    """Return the version that `revision` belongs to."""
    return next((version for version in versions if revision in version), None)


def _occurrences(by_configuration: Mapping[str, list[Object]]) -> Iterable[dict[str, Object]]:
    """Separate versions with the same label: one that was replaced and is deployed again.

    The newest Revisions of all Configurations belong together, then the second newest, and so on.
    """
    stacks = {name: sorted(members, key=_number, reverse=True) for name, members in by_configuration.items()}
    for depth in range(max(len(stack) for stack in stacks.values())):
        yield {name: stack[depth] for name, stack in sorted(stacks.items()) if depth < len(stack)}


def _number(revision: Object) -> int:
    return int(labels_of(revision).get(LABEL_CONFIGURATION_GENERATION, 0))


def _age(members: Mapping[str, Object], rank: Mapping[str, int]) -> tuple[str, int, int, str]:
    first = next(iter(members.values()))
    created = min(str(member["metadata"].get("creationTimestamp", "")) for member in members.values())
    return (created, rank.get(name_of(first), len(rank)), _number(first), name_of(first))


def _version(
    generation: str, members: Mapping[str, Object], loaded: Mapping[str, str], unheld: Collection[str]
) -> Version:
    first = next(iter(members.values()))
    found = {loaded[name_of(member)] for member in members.values() if name_of(member) in loaded}
    facts = annotations_of(first)
    wanted = {name for name in facts.get(ANNOTATION_VARIANTS, "").split(",") if name}
    variants = {name: labels_of(member).get(LABEL_VARIANT, "") for name, member in members.items()}
    complete = wanted <= set(variants.values())
    held = not any(name_of(member) in unheld for member in members.values())
    difference = _difference(first, found)
    same_bytes = len(members) == 1 or (held and difference is None)
    return Version(
        revision=name_of(first),
        revisions={name: name_of(member) for name, member in members.items()},
        variants=variants,
        generation=generation,
        complete=complete,
        ready=complete and same_bytes and all(is_true(member, "Ready") for member in members.values()),
        failure=difference or next((failure for member in members.values() if (failure := _failure(member))), None),
        version=facts.get(ANNOTATION_VERSION, ""),
        digest=facts.get(ANNOTATION_DIGEST) or loaded.get(name_of(first), ""),
        storage_uri=facts.get(ANNOTATION_STORAGE_URI, ""),
        held=held,
    )


def _difference(first: Object, digests: Collection[str]) -> Failure | None:
    """Return the failure of a version whose variants loaded different bytes."""
    if len(digests) <= 1:
        return None
    message = f"its variants loaded {' and '.join(sorted(digests))}: deploy again with the intended digest"
    return Failure(name_of(first), "DigestsDiffer", message, final=True)


def _failure(revision: Object) -> Failure | None:
    ready = condition_of(revision, "Ready")
    if ready is None or ready.get("status") != "False" or ready.get("reason") in PASSING:
        return None
    return Failure(name_of(revision), ready.get("reason", "Failed"), ready.get("message", ""))


def shares_of(traffic: Iterable[Object], versions: Sequence[Version]) -> dict[str, int]:
    """Return the percent of each version, from entries `{revision, percent}` as in `status.traffic`."""
    shares: dict[str, int] = {}
    for entry in traffic:
        version = version_with(versions, entry["revision"])
        name = version.revision if version is not None else entry["revision"]
        shares[name] = shares.get(name, 0) + int(entry.get("percent") or 0)
    return shares
