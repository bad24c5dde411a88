"""Play published experiments about shared clusters with the allocator of GPUs, in a simulated cluster.

python -m loadtests.gpu edl --case 2
python -m loadtests.gpu all --write
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtests.gpu.evidence import EVIDENCE, METHOD, markdown
from loadtests.gpu.scenarios import SCENARIOS
from loadtests.load.page import page
from loadtests.load.result import ScenarioResult


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures. The exit code is 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.gpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", choices=[*SCENARIOS, "all"], nargs="?", default="all", help="[%(default)s]")
    parser.add_argument("--case", type=int, choices=(1, 2), help="of edl; both if not set")
    parser.add_argument("--report", type=Path, default=Path("build/gpu"), help="folder of the plots [%(default)s]")
    parser.add_argument("--write", action="store_true", help="write docs/evidence/gpu.md; only with all")
    options = parser.parse_args(arguments)
    if options.write and options.scenario != "all":
        parser.error("--write needs the scenario all")
    if options.case and options.scenario != "edl":
        parser.error("--case needs the scenario edl")
    results: list[ScenarioResult] = []
    for play in _chosen(options.scenario, options.case):
        results.append(play())
        print(f"{results[-1].name}: {results[-1].description}")
        print("".join(f"  {figure}\n" for figure in results[-1].figures), flush=True)
    options.report.mkdir(parents=True, exist_ok=True)
    path = options.report / "report.html"
    path.write_text(page("Knodel shares a cluster", "", results, METHOD), encoding="utf-8")
    print(path)
    if options.write:
        EVIDENCE.write_text(markdown(results), encoding="utf-8")
    return int(any(result.missed for result in results))


def _chosen(scenario: str, case: int | None) -> list[Callable[[], ScenarioResult]]:
    names = SCENARIOS if scenario == "all" else [scenario]
    plays = [play for name in names for play in SCENARIOS[name]]
    return plays[case - 1 : case] if case else plays


if __name__ == "__main__":
    sys.exit(main())
