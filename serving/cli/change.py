"""Read, change, write: never over somebody else's change of the spec, however often the status moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.errors import Conflict
from clusters.objects import MODEL, Object, generation_of, version_of
from serving.cli.client import Client

ATTEMPTS = 50  # status writes between a read and its write are rare; this many in a row means something else is wrong

Patch = dict[str, Any]


def change_model(
    client: Client, name: str, namespace: str, patch_of: Callable[[Object], Patch], *, dry_run: bool = False
) -> Object:
    """Apply the merge patch that `patch_of` makes of the Model as it stands; returns the Model after it.

    Raises NotFound, Invalid, and Conflict when the spec changed between the first read and the write.
    """
    seen: int | None = None
    for _ in range(ATTEMPTS):
        model = client.get(MODEL, name, namespace)
        if seen not in (None, generation_of(model)):
            break
        seen = generation_of(model)
        patch = patch_of(model)
        metadata = {**patch.get("metadata", {}), "resourceVersion": version_of(model)}
        try:
            return client.merge(MODEL, name, namespace, {**patch, "metadata": metadata}, dry_run)
        except Conflict:
            continue  # most often only the status moved
    raise Conflict(f"model {name} was changed by somebody else meanwhile: look at it and run the command again")
