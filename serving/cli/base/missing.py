"""Explain a module that is not there: the command that installs it, or the system that a verb needs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SYSTEMS: Final[Mapping[str, str]] = MappingProxyType({"darwin": "macOS", "win32": "Windows", "linux": "Linux"})
OWN: Final = frozenset({"autoscaler", "clusters", "eventing", "knodel", "serving"})
REQUIREMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bench": "knodel[bench]",
        "dev": "knodel[server]",
        "doctor": "knodel[platform]",  # of this machine
        "down": "knodel[platform]",
        "explain": "numpy",
        "gpus": "knodel[gpu]",  # of this machine
        "serve": "knodel[server]",
        "up": "knodel[platform]",
    }
)
"""What a verb needs beyond the base."""
AT_A_CLUSTER: Final = "knodel[kubernetes]"
"""What the other verbs need beyond the base."""


def explain_missing(verb: str, module: str) -> str:
    """Return the message for a verb that could not import `module`; empty for a module that no command installs.

    Example:
        >>> explain_missing("up", "uvloop")
        "`knodel up` needs the package uvloop, which is not installed: `pip install 'knodel[platform]'` installs it"
    """
    name = module.partition(".")[0]
    if name in OWN or not name:
        return ""
    if name in sys.stdlib_module_names:  # such as fcntl
        system = SYSTEMS.get(sys.platform, sys.platform)
        remedy = "use it there, or act on a cluster with --kube-context NAME"
        return f"`knodel {verb}` works on Linux, and this is {system}: {remedy}"
    from clusters.base.distribution import install_command  # reads the metadata of the distribution

    command = install_command(REQUIREMENTS.get(verb, AT_A_CLUSTER))
    return f"`knodel {verb}` needs the package {name}, which is not installed: `{command}` installs it"
