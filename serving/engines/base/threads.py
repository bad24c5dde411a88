"""How many threads the libraries below NumPy and scikit-learn may use for one inference."""

from __future__ import annotations

import threading

from threadpoolctl import ThreadpoolController


class ThreadLimit:
    """Holds OpenMP and BLAS to `threads`, in each thread that calls it: OpenMP keeps its limit by thread.

    Knows the libraries that are loaded when it is made; asking them again takes a thousand times as long as a call.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._controller = ThreadpoolController()
        self._thread = threading.local()

    def __call__(self) -> None:
        """Limit the calling thread, the first time."""
        if not hasattr(self._thread, "limited"):
            self._controller.limit(limits=self._threads)
            self._thread.limited = True
