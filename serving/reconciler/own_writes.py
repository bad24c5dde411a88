"""What this process has written and its informers have not shown yet, so that nothing is planned from it twice.

Every write carries the resourceVersion that it was planned from. One that changed its object makes that version
history: another write from it would be refused with certainty, so it is not sent; the change that is on its way to the
informer wakes the Model again.
"""

from __future__ import annotations

from clusters.base.objects import Key, Kind, Object, version_of


class OwnWrites:
    """For each Model, which version of which object its last write was planned from."""

    def __init__(self) -> None:
        self._spent: dict[Key, dict[tuple[Kind, Key], str]] = {}

    def is_spent(self, model: Key, kind: Kind, key: Key, version: str) -> bool:
        """Whether the object has been changed by us since `version`; never for one that is not there yet."""
        return bool(version) and self._spent.get(model, {}).get((kind, key)) == version

    def note(self, model: Key, kind: Kind, key: Key, version: str, answer: Object) -> None:
        """The object was written, planned from `version`; an answer with the same version changed nothing."""
        if version and version_of(answer) != version:
            self._spent.setdefault(model, {})[kind, key] = version

    def forget(self, model: Key) -> None:
        """The Model is gone."""
        self._spent.pop(model, None)
