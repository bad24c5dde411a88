"""Processes of the platform write no core dumps."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
import subprocess
from clusters.base.process_setup import disable_core_dumps
disable_core_dumps()
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
subprocess.run(["cat", "/proc/self/limits"], check=True)
"""


def test_neither_the_process_nor_what_it_starts_may_dump_core() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    own, *childs = said.splitlines()
    [core] = [line for line in childs if line.startswith("Max core file size")]
    assert own == "(0, 0)"
    assert core.split()[4:6] == ["0", "0"]
