"""Programs of the distribution that the testbed runs: looked for, and installed by apt when missing.

No service of theirs is started: while apt works, the policy of invoke-rc.d says "do not" (exit code 101). No package of
the machine's own is removed for them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.testbed import commands
from tests.testbed.errors import MachineLacks, TestbedError
from tests.testbed.progress import Report

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
POLICY: Final = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT: Final = (
    "#!/bin/sh\n# Put here by Knodel's testbed while it installs packages; remove it when you find it.\nexit 101\n"
)
_LONGEST: Final = 600.0  # s for apt on a slow line
_OTHERS: Final = 120  # s that apt waits for another apt: a new machine often updates itself just then


def missing_packages() -> list[str]:
    """Debian's packages that this machine lacks."""
    return sorted({package for program, package in PROGRAMS.items() if commands.find(program) is None})


def ensure(report: Report, policy: Path = POLICY) -> bool:
    """Install what is missing; whether something was. Raises MachineLacks, naming the packages, when that fails."""
    clear_policy(policy)
    packages = missing_packages()
    if not packages:
        return False
    if commands.find("apt-get") is None:
        raise MachineLacks(f"this machine lacks {', '.join(packages)} and has no apt-get: install them yourself")
    report(f"apt-get install {' '.join(packages)}")
    try:
        with _services_stay_off(policy):
            _install(packages, report)
    except TestbedError as exc:
        raise MachineLacks(f"this machine lacks {', '.join(packages)}, and apt cannot install them: {exc}") from exc
    if missing := missing_packages():
        raise MachineLacks(
            f"{', '.join(missing)} is installed, but not where Debian has it: see PROGRAMS in {__file__}"
        )
    return True


def clear_policy(policy: Path = POLICY) -> None:
    """Remove what a run that was killed while apt worked has left: it would keep every later service from starting."""
    if policy.exists() and policy.read_text() == POLICY_TEXT:
        policy.unlink()


def _install(packages: Iterable[str], report: Report) -> None:
    try:
        _apt("update")
    except TestbedError as exc:  # one source that is out of order does not keep the packages from coming from another
        report(str(exc))
    _apt("install", "--yes", "--no-install-recommends", "--no-remove", *packages)


def _apt(*arguments: str) -> None:
    # With the proxies: packages come from elsewhere.
    environment = {**os.environ, "PATH": commands.path(), "DEBIAN_FRONTEND": "noninteractive"}
    commands.run(
        "apt-get", "--quiet", f"-oDPkg::Lock::Timeout={_OTHERS}", *arguments, env=environment, timeout=_LONGEST
    )


@contextlib.contextmanager
def _services_stay_off(policy: Path) -> Iterator[None]:
    """A policy that is there already is the machine's own, and stays."""
    if policy.exists():
        yield
        return
    policy.write_text(POLICY_TEXT)
    policy.chmod(0o755)
    try:
        yield
    finally:
        clear_policy(policy)
