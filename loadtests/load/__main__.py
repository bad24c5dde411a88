"""Run load scenarios, or with `--soak` a long steady load, on a new platform. Write the report as one HTML page."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.bench.machine import described
from loadtests.bench.page import write_page
from loadtests.bench.record import keep, measured_now
from loadtests.load.loaded_platform import LoadedPlatform
from loadtests.load.page import page
from loadtests.load.result import ScenarioResult
from loadtests.load.scenarios import SCENARIOS
from loadtests.load.soak import soak

REPORT = Path("build/load")
MINUTES = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios. The exit code is 1 if an aim is missed."""
    options = _parsed(arguments)
    name = "soak" if options.soak else "report"
    results: list[ScenarioResult] = []
    with tempfile.TemporaryDirectory(prefix="knodel-load-") as folder, LoadedPlatform.at(Path(folder)) as target:
        for result in _run_scenarios(target, options):
            results.append(result)
            print(f"{result.name}: {result.description}")
            print("".join(f"  {line}\n" for line in (*result.figures, *result.notes)), flush=True)
            _write(options.report / f"{name}.html", results)
    if options.keep:
        _keep("soak" if options.soak else "load", results)
    return int(any(result.missed for result in results))


def _run_scenarios(target: LoadedPlatform, options: argparse.Namespace) -> Iterator[ScenarioResult]:
    if options.soak:
        yield soak(target, options.minutes * 60.0)
        return
    for name in options.only:
        play, size = SCENARIOS[name]
        yield play(
            target, dataclasses.replace(size, seconds=size.seconds * options.longer, rate=size.rate * options.more)
        )


def _write(path: Path, results: Sequence[ScenarioResult]) -> None:
    """Write the report of the results so far. An interrupted run leaves a report, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page("Knodel under load", str(described()), results), encoding="utf-8")
    print(f"  {path}\n", flush=True)


def _keep(part: str, results: Sequence[ScenarioResult]) -> None:
    figures = [
        dataclasses.replace(figure, what=f"{result.name} · {figure.what.strip()}")
        for result in results
        for figure in result.figures
    ]
    write_page(keep({part: measured_now(figures)}))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.load", description=__doc__)
    add = parser.add_argument
    add("--only", choices=list(SCENARIOS), nargs="+", default=list(SCENARIOS), help="scenarios to run [all]")
    add("--longer", type=float, default=1.0, metavar="X", help="multiply the duration [%(default)g]")
    add("--more", type=float, default=1.0, metavar="X", help="multiply the request rate [%(default)g]")
    add(
        "--soak",
        action="store_true",
        help="run one steady load and measure the memory, files and tasks of each process",
    )
    add("--minutes", type=float, default=MINUTES, help="minutes of the soak test [%(default)g]")
    add("--report", type=Path, default=REPORT, metavar="FOLDER", help="folder of the report [%(default)s]")
    add("--keep", action="store_true", help="also write the figures to docs/evidence/performance.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
