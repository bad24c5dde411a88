"""Simulate recorded traces with Knodel's decider, Knative's rule and two policies that know all arrivals in advance.

Run with `python -m loadtests.simulate`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from clusters.base.errors import KnodelError
from loadtests.simulate.options import is_default, parse
from loadtests.simulate.outcome import Outcome
from loadtests.simulate.plots import picture
from loadtests.simulate.policies import POLICIES, PolicyOptions
from loadtests.simulate.report import HEAD, LEGEND, REQUIREMENTS, figures, row, title
from loadtests.simulate.trace import Trace, open_trace
from loadtests.simulate.workload import Workload, workload_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Print waits and costs. The exit code is 1 if a requirement is missed, 2 if a trace or policy field is invalid."""
    options = parse(arguments, main.__doc__)
    try:
        traces = [_prepared(open_trace(name), options) for name in options.trace]
        missed = [_compare(trace, start, options) for trace in traces for start in options.start]
    except KnodelError as error:
        print(error, file=sys.stderr)
        return 2
    print(LEGEND)
    return int(any(missed))


def _prepared(trace: Trace, options: argparse.Namespace) -> Trace:
    trace = trace.shuffled(options.seed) if options.shuffle else trace
    return trace.faster(options.faster)


def _compare(trace: Trace, start: float, options: argparse.Namespace) -> bool:
    """Simulate one workload under all policies; return whether a requirement is missed."""
    workload = workload_of(trace, start, slots=options.slots, spread=options.spread, seed=options.seed)
    began = time.perf_counter()
    terms = PolicyOptions(dict(options.overrides), options.pool, options.claim)
    print(title(workload, _notes(options)), HEAD, sep="\n")
    outcomes = {}
    for name in options.policy:
        outcomes[name] = POLICIES[name](workload, terms)
        print(row(outcomes[name], options.price), flush=True)
    required = REQUIREMENTS.get((workload.name, start)) if is_default(options) else None
    found = list(figures(required, outcomes)) if required is not None else []
    for figure in found:
        print(f"  {figure}")
    if options.plots is not None:
        _plot(workload, outcomes, options)
    print(f"  ({time.perf_counter() - began:.1f} s)\n", flush=True)
    return any(figure.missed for figure in found)


def _notes(options: argparse.Namespace) -> str:
    notes = {
        f"{options.faster:g} times as fast": options.faster != 1.0,
        f"variation of times {options.spread:g}": options.spread,
        "bursts shuffled": options.shuffle,
        f"a pool of {options.pool}, {options.claim:g} s per claim": options.pool,
        " ".join(f"{name}={value}" for name, value in options.overrides): options.overrides,
    }
    return "".join(f", {note}" for note, applies in notes.items() if applies)


def _plot(workload: Workload, outcomes: dict[str, Outcome], options: argparse.Namespace) -> None:
    options.plots.mkdir(parents=True, exist_ok=True)
    path = options.plots / f"{workload.name}-{workload.start:g}s.svg"
    path.write_text(picture(title(workload, _notes(options)), list(outcomes.values())), encoding="utf-8")
    print(f"  {path}")


if __name__ == "__main__":
    sys.exit(main())
