"""The page docs/evidence/gpu.md: the assumptions of the simulation, and the tables of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.bench.figure import Figure
from loadtests.load.result import ScenarioResult

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "gpu.md"
METHOD = "Simulated on a virtual clock with the allocator of the product; nothing here ran on a GPU."
HEAD = """# Simulation: who gets how many GPUs

`make gpu` plays published experiments with Knodel's own allocator (`autoscaler/gpu/allocator.py`) in a simulated
cluster
and writes this page. The exit code is 1 if an aim is missed. Plots: `build/gpu/report.html`. One scenario:

    .venv/bin/python -m loadtests.gpu edl --case 2

**This is a simulation. Nothing on this page ran on a GPU or on a real control plane.**

## Where the numbers are from

- *published*: figures of others. EDL's are from the README of its experiment (doc/edl/experiment) in PaddlePaddle/edl
  before commit 310764e. ElasticDL's are from its report, Kueue's are the limits of its own performance test, and Lyra's
  are from its paper (EuroSys 2023).
- *from the logs*: computed from EDL's raw logs of 40 runs in the same folder. Its mean pending times divide the sum of
  10 passes by 11; the means of its own table are 47.2 s and 308.5 s. The limits below are around the published 42.9 s
  and 280.5 s, and hold for 47.2 s and 308.5 s, too.
- All others are ours. "from that" is the distance of the simulation from the published value.

## Assumptions

- Nodes of EDL: 46 with 17 CPU and 87 with 18 CPU. Only their sum, 2 348, is known. Other Pods hold 0.38 CPU of each.
- A Pod starts in 3 to 9 s, evenly distributed. The scheduler binds 12 Pods a second, on the node with the most free
  CPU. Under Knodel, servers have a higher priority than trainers and evict them as kube-scheduler does. Under EDL, as
  then, nothing is evicted.
- Trainers end in 31 s: the grace period of 30 s and a second of the kubelet. 30 s were assumed first; then EDL's
  missing
  share is 0.201. Trainers that end in 5 s save their state when they are told to stop.
- Jobs of EDL's case 1 are submitted 13 s apart and those of case 2 8 s apart: 10 s and 5 s of the scripts and 3 s for
  the
  submission, as in the logs.
- Under Knodel, the other Pods of a job (its master and parameter servers) have a higher priority than trainers and
  evict nobody (`preemptionPolicy: Never`), as with a PriorityClass of their own. Without that they evicted trainers of
  other jobs, which had fewer than their minimum for up to 126 job-seconds in case 1. A job's Pods are created when the
  job is granted its minimum.
- EDL's rules are those of `pkg/autoscaler.go` v0.1.0, every 5 s. Knodel decides each second, with its default settings.
- ElasticDL's jobs have the amount of work with which the run without elasticity takes as long as published, and work
  faster in proportion to their units. So the second row of each is a lower bound.
- Kueue's scenario needs no time for writes to the API server, which Kueue's own test has.
- Volcano's reservation: the slide says "about 30 % faster", and neither what it is compared with nor how long the
  queries take. Here an executor has 1 CPU, and the work of a query is drawn at random. Without reservation, 26 drivers
  leave 6 CPU to executors.
- Lending and fleet are drawn at random from the seeds in the code. Lyra's trace is not public; only the direction is
  comparable, as our factors depend on the load that we chose.

Not reproduced: utilisation of case 1 over the whole run (both are 3 to 5 points higher than published, since Pods start
sooner than in the logs), and the unfairness of EDL in case 2 (Jain 0.88 against 0.77; in the logs one job sat at no
trainer).
"""


def markdown(results: Sequence[ScenarioResult]) -> str:
    """Return the page."""
    return HEAD + "".join(line for result in results for line in _section(result))


def _section(result: ScenarioResult) -> Iterator[str]:
    yield f"\n## {result.name}\n\n{result.description}\n\n| | value | aim |\n|---|---|---|\n"
    for figure in result.figures:
        yield f"| {figure.what.strip()} | {figure.value:.4g} {figure.unit} | {_aim(figure)} |\n"


def _aim(figure: Figure) -> str:
    if figure.aim is None:
        return ""
    verdict = "**missed**" if figure.missed else "ok"
    return f"{'≥' if figure.least else '≤'} {figure.aim:.4g} {verdict}"
