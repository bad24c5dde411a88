"""Complete the commands that messages advise with the caller's `--namespace`, `--state` and `--kube-context`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_COMMAND: Final = re.compile(r"`(knodel [^`]+)`")
_NOWHERE: Final = frozenset({"completion", "dev", "env", "init", "serve"})
_CLUSTER: Final = frozenset({"install", "uninstall"})
_MACHINE: Final = frozenset({"up", "down"})
REFUSED_BY: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "--namespace": _NOWHERE | _CLUSTER | _MACHINE | {"namespace", "config", "version", "dashboard"},
        "--state": _NOWHERE | _CLUSTER,
        "--kube-context": _NOWHERE | _MACHINE,
        "--env": _NOWHERE | {"secret"},
    }
)
"""The verbs that do not take each option."""
_PLACES: Final = ("--state", "--kube-context", "--env")
_SAME: Final = MappingProxyType({"--namespace": ("-n", "-A", "--all-namespaces"), **dict.fromkeys(_PLACES, _PLACES)})


def complete_advice(text: str, options: Mapping[str, str]) -> str:
    """Return the text with the options added to each advised command that takes but lacks them. Pure.

    Example:
        >>> complete_advice("`knodel promote iris` promotes it", {"--namespace": "team"})
        '`knodel promote iris --namespace team` promotes it'
    """
    if not options or "`knodel " not in text:
        return text
    return _COMMAND.sub(lambda found: f"`{_completed(found[1], options)}`", text)


def _completed(command: str, options: Mapping[str, str]) -> str:
    words = command.split()
    if words[1].startswith("-"):  # `knodel --help`
        return command
    added = [
        f"{option} {shlex.quote(value)}"
        for option, value in options.items()
        if words[1] not in REFUSED_BY[option] and not {option, *_SAME.get(option, ())} & set(words)
    ]
    return " ".join([command, *added])
