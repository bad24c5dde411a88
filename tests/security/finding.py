"""What a scanner has found, and why some of it is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """`rule` as the tool calls it, `place` a file with its line or an object, `text` the tool's words."""

    tool: str
    rule: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.tool} {self.rule} {self.place}: {self.text}"


class Explanation(NamedTuple):
    """What `rule` finds in places that match the pattern is meant, for this reason."""

    rule: str
    places: str
    why: str

    def explains(self, finding: Finding) -> bool:
        """Whether it is about this one."""
        return finding.rule == self.rule and re.search(self.places, finding.place) is not None


def unexplained(findings: Iterable[Finding], explained: Sequence[Explanation]) -> list[Finding]:
    """What has to be mended."""
    return [finding for finding in findings if not any(one.explains(finding) for one in explained)]


def idle(findings: Sequence[Finding], explained: Iterable[Explanation]) -> list[Explanation]:
    """Explanations of what is found no more: they would hide the next one."""
    return [one for one in explained if not any(one.explains(finding) for finding in findings)]
