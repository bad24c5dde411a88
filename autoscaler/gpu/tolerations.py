"""Whether taints of a node let a Pod with GPUs run there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def is_tolerated(
    taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]], resources: Collection[str]
) -> bool:
    """Return whether a taint lets a Pod run that requests `resources`.

    A taint with the name of a requested resource does, since the admission plugin ExtendedResourceToleration adds the
    toleration.
    """
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    key, value = taint.get("key"), taint.get("value") or ""
    return key in resources or any(
        one.get("key") in (key, None, "")
        and one.get("effect") in (taint.get("effect"), None, "")
        and (one.get("operator") == "Exists" or ((one.get("value") or "") == value and one.get("key")))
        for one in tolerations
    )
