"""What the zygotes of the tests import and fork into."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from clusters.net.sockets import LISTEN_FDS, find_inherited

IMPORTED_BY = os.getpid()


def report(argv: Sequence[str]) -> int:
    """Print what this process is, and end with the code `argv[0]`."""
    facts = {
        "argv": list(argv),
        "sysArgv": sys.argv,
        "forked": os.getpid() != IMPORTED_BY,
        "session": os.getsid(0) == os.getpid(),
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "files": sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir()),
        "limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "random": random.random(),
        "sigchld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    }
    print(json.dumps(facts), flush=True)
    return int(argv[0])


def wait(argv: Sequence[str]) -> int:
    """Wait for SIGTERM, which ends the process with code 7."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("waiting", flush=True)
    while True:
        signal.pause()


def serve(argv: Sequence[str]) -> int:
    """Accept one connection on the inherited socket that listens on the address `argv`, and end with code 9."""
    inherited = find_inherited(os.environ[LISTEN_FDS], argv[0], int(argv[1]))
    assert inherited is not None
    with inherited:
        inherited.setblocking(True)
        inherited.accept()[0].close()
    return 9


def broken(argv: Sequence[str]) -> int:
    """Raise."""
    raise RuntimeError("no such tensor")
