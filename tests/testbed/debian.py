"""Programs of the distribution that the testbed runs: looked for, and installed by apt when missing.

No service of theirs is left running: while apt works, the policy of invoke-rc.d says "do not" (exit code 101).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.testbed import commands
from tests.testbed.errors import MachineLacks, TestbedError
from tests.testbed.progress import Progress

# Program, and Debian's package with it.
PROGRAMS: Final = {
    "/usr/bin/containerd": "containerd",
    "/usr/bin/ctr": "containerd",
    "/usr/sbin/runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "mount": "mount",
    "nice": "coreutils",
}
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT: Final = (
    "#!/bin/sh\n# Put here by Knodel's testbed while it installs packages; remove it when you find it.\nexit 101\n"
)
_LONGEST: Final = 600.0  # s for apt on a slow line


def missing_packages() -> list[str]:
    """Debian's packages that this machine lacks."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def ensure(progress: Progress) -> bool:
    """Install what is missing; whether something was. Raises MachineLacks, naming the packages, when that fails."""
    packages = missing_packages()
    if not packages:
        return False
    if shutil.which("apt-get") is None:
        raise MachineLacks(f"this machine lacks {', '.join(packages)} and has no apt-get: install them yourself")
    progress(f"apt-get install {' '.join(packages)}")
    try:
        with _services_stay_off():
            _apt("update")
            _apt("install", "--yes", "--no-install-recommends", *packages)
    except TestbedError as exc:
        raise MachineLacks(f"this machine lacks {', '.join(packages)}, and apt cannot install them: {exc}") from exc
    return True


def _apt(*arguments: str) -> None:
    environment = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
    commands.run("apt-get", "--quiet", *arguments, env=environment, timeout=_LONGEST)


@contextlib.contextmanager
def _services_stay_off() -> Iterator[None]:
    """A policy that is there already stays: it is the machine's own, or says the same."""
    if _POLICY.exists() and _POLICY.read_text() != _POLICY_TEXT:
        yield
        return
    _POLICY.write_text(_POLICY_TEXT)
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)
