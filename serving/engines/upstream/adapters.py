"""The LoRA adapters that an engine serves now, and the requests that use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ServedAdapter:
    """An adapter that requests ask for by `name`, and that the engine knows as `model`. `requests` use it now."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name
        self.model = model
        self.requests = 0


class AdapterTable:
    """The served adapters by name. Threads may share it.

    A replaced or removed adapter gets no new requests. It must stay loaded until it `is_idle`.
    """

    def __init__(self, served: Sequence[ServedAdapter] = ()) -> None:
        self._lock = threading.Lock()
        self._served = {one.name: one for one in served}

    @property
    def names(self) -> Sequence[str]:
        """The names of the served adapters."""
        return tuple(self._served)

    @contextmanager
    def using(self, name: str) -> Iterator[ServedAdapter | None]:
        """Count a request of an adapter while the block runs; yield None if there is no such adapter."""
        with self._lock:
            found = self._served.get(name)
            if found is not None:
                found.requests += 1
        try:
            yield found
        finally:
            if found is not None:
                with self._lock:
                    found.requests -= 1

    def put(self, adapter: ServedAdapter) -> None:
        """Serve an adapter from now on, in place of the one that had its name."""
        with self._lock:
            self._served = {**self._served, adapter.name: adapter}

    def remove(self, name: str) -> None:
        """Serve an adapter no longer."""
        with self._lock:
            self._served = {other: one for other, one in self._served.items() if other != name}

    def is_idle(self, adapter: ServedAdapter) -> bool:
        """Return whether no request uses the adapter."""
        with self._lock:
            return adapter.requests == 0
