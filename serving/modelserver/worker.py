"""A worker: compute with the leader of a replica until the leader is gone, or a signal.

A worker's Pod runs the same command as its leader's. The variable `KNODEL_RANK` makes it a worker. It serves no
requests. It ends by itself when its leader's server does, since nothing else may notice that on a network that is cut.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.group import listens
from serving.engines.base.registry import find_format, find_worker

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

PERIOD: Final = 1.0  # s between two looks at process and leader
MOST_MISSES: Final = 3
"""Failed connections in a row after which the leader is gone; a busy node may miss one."""


def work(model_format: str, artifact: Callable[[], Artifact], options: EngineOptions, leader: tuple[str, int]) -> None:
    """Work until SIGTERM or SIGINT, or until nothing listens on the address `leader` any more.

    `artifact` waits for the model's files, which only some formats need. Raises LoadFailed, MissingEngine, StorageError
    when the worker cannot start, and LoadFailed when its process ends before the leader.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not listens(*leader):  # it may still pull its image; the controller of groups ends what waits in vain
        if stop.wait(PERIOD):
            return
    process = find_worker(find_format(model_format, ()))(artifact, options)
    log.info("worker %d of %d has begun to work for %s", options.group.rank, options.group.workers, leader[0])
    misses = 0
    try:
        while not stop.wait(PERIOD):
            if process.ended:
                raise LoadFailed(f"the worker ended {process.exit_reason()}")
            misses = 0 if listens(*leader) else misses + 1
            if misses >= MOST_MISSES:
                log.info("the leader %s is gone: the worker ends", leader[0])
                return
    finally:
        process.close()
