"""Make Knative's traffic targets: floating ones (latest ready revision) and pinned ones, over all variants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusters.base.objects import Object
from serving.makers import names
from serving.types.model import Model

ALL = 100
"""Percent."""


def largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` into whole parts in proportion to `weights`. The largest fractions are rounded up.

    Of equal fractions, the earlier one is rounded up first. Source: Hamilton's method
    (https://en.wikipedia.org/wiki/Quota_method).

    Example:
        >>> largest_remainder(100, [1, 1, 1])
        [34, 33, 33]
    """
    whole = sum(weights)
    if whole <= 0:
        return [total] + [0] * (len(weights) - 1) if weights else []
    shares = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in order[: total - sum(shares)]:
        shares[index] += 1
    return shares


def floating(model: Model, percent: int, tag: str = "") -> list[Object]:
    """Return targets that Knative moves to the latest ready revision, of the Service or of each variant."""
    if not model.spec.variants:
        return [tagged({"latestRevision": True, "percent": percent}, tag)]
    weights = [variant.percent for variant in model.spec.variants]
    targets: list[Object] = [
        {"configurationName": names.variant_configuration(model, variant), "latestRevision": True, "percent": share}
        for variant, share in zip(model.spec.variants, largest_remainder(percent, weights), strict=True)
    ]
    return tagged_largest(targets, weights, tag)


def pinned(revision: str, percent: int, tag: str = "") -> Object:
    """Return a target with a fixed revision."""
    return tagged({"revisionName": revision, "latestRevision": False, "percent": percent}, tag)


def tagged(target: Object, tag: str) -> Object:
    """Return the target with the tag, unless the tag is empty."""
    return {**target, "tag": tag} if tag else target


def tagged_largest(targets: Sequence[Object], weights: Sequence[int], tag: str) -> list[Object]:
    """Return the targets with the tag on the one of the largest weight, since a tag has only one target."""
    largest = max(range(len(targets)), key=lambda index: (weights[index], -index))
    return [tagged(target, tag) if index == largest else target for index, target in enumerate(targets)]


def merged(targets: Iterable[Object]) -> tuple[Object, ...]:
    """Add up targets of the same revision and tag, and leave out untagged ones without traffic."""
    found: dict[tuple[str, str, str], Object] = {}
    for target in targets:
        key = (target.get("revisionName", ""), target.get("configurationName", ""), target.get("tag", ""))
        former = found.get(key)
        found[key] = {**target, "percent": target["percent"] + former["percent"]} if former else target
    return tuple(target for target in found.values() if target["percent"] or target.get("tag"))


def first_traffic(model: Model) -> tuple[Object, ...]:
    """Return the targets of a new Model. Revisions in its spec are used without a check."""
    if not model.spec.traffic:
        return merged(floating(model, ALL))
    targets: list[Object] = []
    for entry in model.spec.traffic:
        if entry.revision is None:
            targets += floating(model, entry.percent, entry.tag)
        else:
            targets.append(pinned(entry.revision, entry.percent, entry.tag))
    return merged(targets)
