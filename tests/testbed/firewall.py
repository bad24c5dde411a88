"""The packet filter rules that kube-proxy and the kubelet leave behind: found in a saved rule set, and undone.

Chains of network plugins (`CNI-…`) are not the testbed's: its bridge plugin makes none, another container engine may.
"""

from __future__ import annotations

import re
from typing import Final

from tests.testbed import commands

_CHAIN: Final = re.compile(r"^KUBE-")
_RULE: Final = re.compile(r"^-A (?P<chain>\S+) .*(?:-j|-g) (?P<target>\S+)")
_FAMILIES: Final = ("iptables", "ip6tables")


def clear() -> None:
    """Remove Kubernetes' chains, and the rules that lead to them, of both address families."""
    for family in _FAMILIES:
        if commands.find(family) is not None:
            undoing = undo(commands.run(f"{family}-save"))
            if undoing:
                commands.run(f"{family}-restore", "--noflush", input=undoing)


def undo(saved: str) -> str:
    """Input of `iptables-restore --noflush` that takes Kubernetes' part out of what iptables-save printed.

    First the rules of other chains that lead to Kubernetes' chains, then the chains, emptied before.
    """
    commands_by_table = []
    for table, lines in _tables(saved):
        chains = [line[1:].split()[0] for line in lines if line.startswith(":")]
        ours = [chain for chain in chains if _CHAIN.match(chain)]
        rules = [f"-D{line[2:]}" for line in lines if _leads_to_ours(line)]
        undoing = [*rules, *(f"-F {chain}" for chain in ours), *(f"-X {chain}" for chain in ours)]
        if undoing:
            commands_by_table.append("\n".join([f"*{table}", *undoing, "COMMIT", ""]))
    return "".join(commands_by_table)


def _tables(saved: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            found.append((line[1:].strip(), []))
        elif found:
            found[-1][1].append(line)
    return found


def _leads_to_ours(line: str) -> bool:
    rule = _RULE.match(line)
    return rule is not None and not _CHAIN.match(rule["chain"]) and _CHAIN.match(rule["target"]) is not None
