"""Commands of the machine run to their end; a failure becomes one line of a `TestbedError`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.testbed.errors import TestbedError

_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
_ADMINISTRATORS: Final = "/usr/sbin:/sbin"  # iptables, ip, modprobe; not on the PATH of every root
_SHOWN: Final = 2000  # characters of a failed command's last words that the message carries


def environment(**extra: str) -> dict[str, str]:
    """This process' environment without proxies: nothing of the testbed leaves the machine."""
    own = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    return own | {"PATH": path()} | extra


def path() -> str:
    """Where programs are looked for: also where those of administrators are."""
    return f"{os.environ.get('PATH', os.defpath)}:{_ADMINISTRATORS}"


def find(program: str) -> str | None:
    """Where the program is that `run` would start; None when there is none."""
    return shutil.which(program, path=path())


def run(
    *command: str | Path,
    input: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
) -> str:
    """Stdout of a command that ends well within `timeout` seconds.

    Raises TestbedError, with the command's last words, when it ends otherwise, is too slow or does not exist.
    """
    words = [str(word) for word in command]
    shown = " ".join(words[:6])
    try:
        done = subprocess.run(
            words,
            input=input,
            cwd=cwd,
            env=environment() if env is None else env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise TestbedError(f"`{shown}` did not end within {timeout:g} s") from exc
    except OSError as exc:
        raise TestbedError(f"`{shown}` cannot be started: {exc.strerror}") from exc
    if done.returncode != 0:
        raise TestbedError(f"`{shown}` ended with {done.returncode}: {_last_words(done.stderr or done.stdout)}")
    return done.stdout


def succeeds(*command: str | Path) -> bool:
    """Whether the command ends well; what it says is dropped."""
    try:
        run(*command)
    except TestbedError:
        return False
    return True


def _last_words(text: str) -> str:
    return " ".join(text.split())[-_SHOWN:] or "(it said nothing)"
