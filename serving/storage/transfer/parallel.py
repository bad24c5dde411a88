"""Run tasks in several threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

T = TypeVar("T")


def run_all(tasks: Sequence[Callable[[], T]], at_once: int, cancel: Callable[[], None]) -> list[T]:
    """Run the tasks, at most `at_once` at the same time, and return their results in order.

    The caller's thread runs tasks too. After the first error no task is started, `cancel` is called to end those that
    run, and the error is raised.
    """
    pending: SimpleQueue[int] = SimpleQueue()
    for index in range(len(tasks)):
        pending.put(index)
    results: list[T | None] = [None] * len(tasks)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with contextlib.suppress(Empty):
                while not errors:
                    index = pending.get_nowait()
                    results[index] = tasks[index]()
        except BaseException as error:
            errors.append(error)
            cancel()

    threads = [
        threading.Thread(target=work, name="transfer", daemon=True)  # the process can end without them
        for _ in range(min(at_once, len(tasks)) - 1)
    ]
    try:
        with contextlib.suppress(RuntimeError):  # the machine has no more threads: fewer tasks at once
            for thread in threads:
                thread.start()
        work()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    except BaseException:
        cancel()
        raise
    if errors:
        raise errors[0]
    return cast(list[T], results)
