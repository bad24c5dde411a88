"""A composition root of `knodel up` whose store kills it at a chosen write, behind a parent that starts it again fast.

    python -m tests.faults.crash.platform FOLDER PORT CONTROL_PORT

Reads lines from stdin. At each it forks a platform of which all is imported already, and writes `started PID` to
stdout; when that has ended, `ended STATUS` (negative: the signal), and takes the next line. What platforms have started
is left alone, as after any crash.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from clusters.embedded.store.store import Store
from serving.platform.platform import run_platform
from serving.types.settings.settings import Settings, load_settings
from tests.faults.kit.crash import CrashingDatabase

LOG = "platform.log"
STATE = "state"


def open_store(path: Path) -> Store:
    """A store over a file that crashes."""
    database = CrashingDatabase.open(path)
    try:
        return Store(database)
    except BaseException:
        database.close()
        raise


def fork(folder: Path, settings: Settings) -> int:
    """Start a platform; its process."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os._exit(run_platform(folder / STATE, settings, open_store))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def main() -> None:
    """Serve until the end of stdin."""
    folder = Path(sys.argv[1])
    settings = load_settings(None, gateway_port=int(sys.argv[2]), control_port=int(sys.argv[3]))
    for _ in sys.stdin:
        child = fork(folder, settings)
        print(f"started {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"ended {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
