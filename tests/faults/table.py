"""The catalogue with what became of its tests, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tests.faults.catalogue import CATALOGUE, PARTS, Row, rows_of
from tests.faults.results import Result

NO_TEST = "**no test ran**"
BEGIN, END = "<!-- results: written by `make test-faults` -->", "<!-- end of results -->"


def put_into(page: str, table: str) -> str:
    """The page with the table between its two marks.

    Raises:
        ValueError: the page has no marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}: put both where the table is to stand")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def table(results: Mapping[str, Sequence[Result]], machine: str) -> str:
    """All parts. `results` by where they ran: `embedded`, `kubernetes`."""
    found = [(place, result) for place, some in results.items() for result in some]
    lines = [f"{summary(found)} {machine}", ""]
    for letter, part in PARTS.items():
        lines += [f"### {letter}: {part}", "", "| | Fault | Passes when | Result | Tests |", "|---|---|---|---|---|"]
        for row in rows_of(letter):
            own = [(place, result) for place, result in found if result.id == row.id]
            lines.append(f"| {row.id} | {row.fault} | {row.passes} | {verdict(row, own)} | {proofs(own)} |")
        lines.append("")
    return "\n".join(lines)


def summary(found: Sequence[tuple[str, Result]]) -> str:
    """How many rows are green."""
    ran = {result.id for _, result in found if result.outcome != "skipped"}
    broken = {result.id for _, result in found if result.outcome == "failed"}
    tests = {(place, result.test) for place, result in found}
    seconds = {(place, result.test): result.seconds for place, result in found}
    return (
        f"{len(ran - broken)} of {len(CATALOGUE)} rows passed, {len(broken)} failed;"
        f" {len(tests)} tests, {sum(seconds.values()) / 60:.0f} minutes."
    )


def verdict(row: Row, own: Sequence[tuple[str, Result]]) -> str:
    """What a reader wants to know first."""
    words = []
    outcomes = [result.outcome for _, result in own]
    if "failed" in outcomes:
        words.append(f"**failed** ({outcomes.count('failed')} of {len(outcomes)})")
    elif "passed" in outcomes:
        words.append(f"passed ({outcomes.count('passed')})")
    words += [f"not run: {reason}" for reason in unique(result.reason for _, result in own if result.reason)]
    words += [f"shortened: {it}" for it in unique(result.shortened for _, result in own if result.shortened)]
    if "passed" not in outcomes and "failed" not in outcomes:
        words.append(NO_TEST)
    return "; ".join([*words, row.limits] if row.limits else words)


def proofs(own: Sequence[tuple[str, Result]]) -> str:
    """Links to the files of the tests, the slowest seconds with them."""
    cells = []
    for (place, path), some in groupby(sorted((place, file_of(result)) for place, result in own)):
        seconds = sum(result.seconds for where, result in own if (where, file_of(result)) == (place, path))
        name = path.rpartition("/")[2].removesuffix(".py").removeprefix("test_")
        on = " on Kubernetes" if place == "kubernetes" else ""
        cells.append(f"[{name}](../../{path}){on}: {len(list(some))}, {seconds:.0f} s")
    return "<br>".join(cells)


def file_of(result: Result) -> str:
    """The file of a test."""
    return result.test.partition("::")[0]


def unique(words: Iterable[str]) -> list[str]:
    """Each once, in the order of their coming."""
    return list(dict.fromkeys(words))


def left_out(results: Iterable[Result]) -> list[tuple[str, str, int]]:
    """Row, why some of its tests were skipped, and how many."""
    counted = Counter((result.id, result.reason) for result in results if result.outcome == "skipped")
    return [(row, reason, number) for (row, reason), number in sorted(counted.items())]


def unproven(results: Iterable[Result]) -> list[Row]:
    """Rows of which no test ran."""
    ran = {result.id for result in results if result.outcome != "skipped"}
    return [row for row in CATALOGUE if row.id not in ran]
