"""The scenarios: what is played, the figures with their aims, and plots."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from autoscaler.gpu.claims import AllocationSettings, Place, Tenant
from loadtests.bench.figure import Figure
from loadtests.gpu import edl, spark
from loadtests.gpu.fleet import bill, make_fleet
from loadtests.gpu.kueue import play_cohort
from loadtests.gpu.policies import Edl, Fixed, Knodel
from loadtests.gpu.work import RESOURCE, Allocated, Sizer, Work, fixed, play
from loadtests.load.result import BLUE, GREEN, GREY, ORANGE, ScenarioResult
from loadtests.simulate.chart import Chart, Line

QUICK_END = 5.0
"""Seconds that trainers take to end when they save their state at once; 31 s is a grace period that they use up."""
START, BINDS = 9.0, 12.0
"""Longest start of a Pod in seconds, and Pods that the scheduler binds in a second."""
DAY = 86_400.0


def edl_case_1() -> ScenarioResult:
    """Play 20 training jobs that are submitted one after another."""
    off, theirs = edl.case_1(Fixed()), edl.case_1(Edl())
    ours, quick = edl.case_1(Knodel()), edl.case_1(Knodel(), edl.with_end(edl.Sizes(), QUICK_END))
    late = (400.0, 550.0)
    figures = [
        *_near("off: mean pending time (published 280.5)", statistics.fmean(off.pending), 280.5, 0.15 * 280.5, "s"),
        *_near("EDL's rules: mean pending time (published 42.9)", statistics.fmean(theirs.pending), 42.9, 6.4, "s"),
        *_near("off: utilisation 400-550 s (from the logs 88.7)", off.use(*late), 88.7, 3.0, "%"),
        *_near("EDL's rules: utilisation 400-550 s (from the logs 86.4)", theirs.use(*late), 86.4, 3.0, "%"),
        Figure("off: utilisation 0-550 s (published 76.2)", off.use(0, 550), "%"),
        Figure("EDL's rules: utilisation 0-550 s (published 76.3)", theirs.use(0, 550), "%"),
        Figure("EDL's rules: Jain 400-550 s (from the logs 0.436)", theirs.jain(*late), ""),
    ]
    for name, seen in (("Knodel", ours), ("Knodel, trainers end in 5 s", quick)):
        figures += [
            Figure(f"{name}: mean pending time", statistics.fmean(seen.pending), "s", 25.0),
            Figure(f"{name}: Jain 400-550 s", seen.jain(*late), "", 0.99, least=True),
            Figure(f"{name}: utilisation 400-550 s", seen.use(*late), "%"),
            Figure(f"{name}: job-seconds below the minimum", seen.below_minimum, "s", 0),
        ]
    lines = [
        Line(name, colour, [(time, float(sum(count > 0 for count in jobs))) for time, jobs in _trainers(seen)])
        for name, colour, seen in (("off", GREY, off), ("EDL's rules", ORANGE, theirs), ("Knodel", BLUE, ours))
    ]
    return ScenarioResult(
        "edl-1", "PaddlePaddle EDL, case 1: 20 jobs of 2 to 60 trainers (off: 60) on 2 348 CPU.", figures,
        [Chart("Jobs that train", "seconds", lines)],
    )  # fmt: skip


def edl_case_2() -> ScenarioResult:
    """Play six training jobs beside servers that are scaled down and up again."""
    sizes, short = edl.Sizes(), edl.with_end(edl.Sizes(), QUICK_END)
    off, theirs, theirs_short = edl.case_2(Fixed(), sizes), edl.case_2(Edl(), sizes), edl.case_2(Edl(), short)
    ours, slow, uniform = edl.case_2(Knodel(), short), edl.case_2(Knodel(), sizes), edl.case_2(Knodel(), edl.UNIFORM)
    fast = edl.case_2(Knodel(), short, binds=1_000.0)
    figures = [
        *_near("off: utilisation (published 61.9)", off.use(0, 550), 61.9, 3.0, "%"),
        *_near("EDL's rules: utilisation (published 83.4)", theirs.use(0, 550), 83.4, 3.0, "%"),
        *_near("off: utilisation off-peak (published 44.9)", off.use(*edl.OFF_PEAK), 44.9, 3.0, "%"),
        *_near("EDL's rules: utilisation off-peak (published 79.4)", theirs.use(*edl.OFF_PEAK), 79.4, 5.0, "%"),
        *_near("off: missing servers (from the logs 0.023)", off.missing(), 0.023, 0.03, ""),
        *_near("EDL's rules: missing servers (from the logs 0.232)", theirs.missing(), 0.232, 0.03, ""),
        Figure("EDL's rules: Jain (from the logs 0.766)", theirs.jain(*edl.JAIN), ""),
        Figure("EDL's rules, trainers end in 5 s: missing servers", theirs_short.missing(), ""),
        Figure("EDL's rules, trainers end in 5 s: utilisation", theirs_short.use(0, 550), "%"),
    ]
    for name, seen, end, other in (
        ("Knodel, trainers end in 5 s", ours, QUICK_END, theirs_short), ("Knodel", slow, sizes.end, theirs),
    ):  # fmt: skip
        figures += [
            Figure(f"{name}: missing servers", seen.missing(), "", 0.06 if end == QUICK_END else None),
            Figure(f"{name}: 100 more serve after, longest (end + start + 2 s + binds)",
                   max(seen.waits_of_steps()), "s", end + START + 2.0 + 100 / BINDS),
            Figure(f"{name}: utilisation (EDL's rules in the same run, less 1)", seen.use(0, 550), "%",
                   round(other.use(0, 550) - 1.0, 2), least=True),
            Figure(f"{name}: utilisation off-peak", seen.use(*edl.OFF_PEAK), "%"),
            Figure(f"{name}: Jain", seen.jain(*edl.JAIN), "", 0.99, least=True),
            Figure(f"{name}: job-seconds below the minimum", seen.below_minimum, "s", 0),
        ]  # fmt: skip
    figures += [
        Figure("Knodel, end in 5 s, 1 000 binds/s: 100 more serve after", max(fast.waits_of_steps()), "s",
               QUICK_END + START + 2.0),
        Figure("Knodel, 600 equal slots: utilisation 150-690 s", uniform.use(150, 690), "%", 95.0, least=True),
        Figure("Knodel, 600 equal slots: missing servers", uniform.missing(), "", 0.06),
    ]  # fmt: skip
    runs = (("off", GREY, off), ("EDL's rules", ORANGE, theirs), ("Knodel", BLUE, ours))
    wanted = Line("wanted", GREEN, [(time, float(value)) for time, value in zip(off.times, off.wanted, strict=True)])
    charts = [
        Chart("Utilisation, %", "seconds", [
            Line(name, colour, [(time, 100 * used) for time, used in zip(seen.times, seen.used, strict=True)])
            for name, colour, seen in runs
        ]),
        Chart("Servers that run", "seconds", [wanted, *(
            Line(name, colour, [(time, float(value)) for time, value in zip(seen.times, seen.serving, strict=True)])
            for name, colour, seen in runs
        )]),
    ]  # fmt: skip
    return ScenarioResult(
        "edl-2", "PaddlePaddle EDL, case 2: six jobs beside 400 to 100 to 400 servers on 2 348 CPU.", figures, charts
    )


def elasticdl() -> ScenarioResult:
    """Play ElasticDL's two experiments: two jobs that do not fit beside each other at full size."""
    figures = []
    for what, total, size, second, starts, work, waits, published in (
        ("6 GPUs, two jobs of 4", 6, 4, 120.0, (68.0, 0.0), 1_800.0, 968.0, 809.0),
        ("24 CPUs, two jobs of 13", 24, 13, 30.0, (0.0, 0.0), 5_168.0, 795.0, 580.0),
    ):
        jobs: dict[str, list[Work]] = {}
        for name, sizer in (("gang", fixed(total)), ("Knodel", Allocated([_place(total)]))):
            jobs[name] = [
                Work(f"Job team/{number}", submitted, work, 1, size, start)
                for number, (submitted, start) in enumerate(zip((0.0, second), starts, strict=True))
            ]
            play(jobs[name], sizer, 3_000.0)
        figures += [
            *_near(f"{what}: gang, both ended (published {waits:g})", _last(jobs["gang"]), waits, 5.0, "s"),
            Figure(f"{what}: Knodel, both ended (ElasticDL {published:g})", _last(jobs["Knodel"]), "s", published),
            Figure(f"{what}: Knodel, the second job waits", (jobs["Knodel"][1].began or math.inf) - second, "s", 0.0),
        ]
    return ScenarioResult(
        "elasticdl",
        "ElasticDL: the second job starts at once and uses what is free. Speed is linear in units.",
        figures,
    )


def volcano() -> ScenarioResult:
    """Play Volcano's gangs, and fair share by weight, on 14 slots."""
    figures = []
    for count, slowest in ((1, 30.0), (2, 30.0), (5, 70.0)):
        ends = _ends_without_gangs(count, 14, 6)
        jobs = [Work(f"Job team/{number}", 0.0, 120.0, 6, 6, 2.0) for number in range(count)]
        play(jobs, Allocated([_place(14)]), 180.0)
        figures += [
            Figure(f"{count} gangs of 6 Pods, no gang scheduling: ended in 180 s", ends, ""),
            Figure(f"{count} gangs of 6 Pods, Knodel: ended", sum(job.ended is not None for job in jobs), "", count, least=True),  # noqa: E501
            Figure(f"{count} gangs of 6 Pods, Knodel: last ended (Volcano 64 for 5)", _last(jobs), "s", slowest),
        ]  # fmt: skip
    for order, begin in (("together", 0.0), ("the heavier 60 s later", 60.0)):
        jobs = [Work(f"Job {name}/train", at, 1e9, 1, 20, 0.0, name) for name, at in (("a", 0.0), ("b", begin))]
        tenants = {"a": Tenant(weight=1.0), "b": Tenant(weight=3.0)}
        play(jobs, Allocated([_place(14)], AllocationSettings(tenants)), 300.0)
        figures += [
            Figure(f"weights 1 : 3, {order}: units from 10.5 of 14", abs(jobs[1].held - 10.5), "", 1.0),
            Figure(f"weights 1 : 3, {order}: idle units", 14 - jobs[0].held - jobs[1].held, "", 0.0),
        ]
    return ScenarioResult(
        "volcano", "Volcano's demonstrations: gangs on 14 slots, and two queues of weight 1 : 3.", figures
    )


def volcano_reservation() -> ScenarioResult:
    """Play Volcano's example of Spark, whose drivers take the room of executors unless it is reserved."""
    ways: dict[str, Sizer] = {
        f"no reservation, {spark.AT_ONCE} at once": spark.drivers_first(spark.AT_ONCE),
        "a node for drivers": spark.split(spark.NODE),
        "Knodel": Allocated([_place(spark.CPUS)]),
    }
    took = {}
    for name, sizer in ways.items():
        queries = spark.make_queries()
        play(queries, sizer, 40_000.0)
        took[name] = _last(queries)
    none, split, ours = took.values()
    figures = [Figure(f"{name}: last ended", seconds, "s") for name, seconds in took.items()]
    figures += [
        Figure("Knodel, times faster than without reservation (published about 1.3)", none / ours, "", 1.3, least=True),
        Figure("Knodel, times faster than with a node for drivers", split / ours, "", 1.0, least=True),
    ]
    return ScenarioResult(
        "volcano-reservation",
        f"Volcano's job-level reservation: {spark.QUERIES} queries of Spark on 4 nodes with 8 CPU. A query has a "
        f"driver and {spark.EXECUTORS} executors, with 1 CPU each.",
        figures,
    )


def kueue() -> ScenarioResult:
    """Play Kueue's performance scenario."""
    found = play_cohort()
    figures = [
        Figure("wall time (ideal 66; Kueue's limit 351)", found.wall, "s", 351.0),
        Figure("units in use (Kueue at least 55.9)", found.used, "%", 55.9, least=True),
        *(
            Figure(f"mean time to admission, {name} (Kueue's limit {most:g})", found.admission[name], "s", most)
            for name, most in (("large", 16.5), ("medium", 76.8), ("small", 215.0))
        ),
        Figure("evictions in a cohort, each lost its work", found.evicted, ""),
    ]
    return ScenarioResult(
        "kueue", "Kueue's performance scenario. Decisions only: Writes take no time, unlike Kueue's.",
        figures,
    )  # fmt: skip


def lending() -> ScenarioResult:
    """Play a day on which serving lends GPUs to training, against two clusters of their own."""
    runs: dict[str, list[Work]] = {}
    lines, short = [], 0

    def wanted(now: float) -> int:
        return round(12 + 40 * (0.5 - 0.5 * math.cos(2 * math.pi * now / DAY)))

    pool = Allocated([_place(128)], serving=wanted)

    def lent(now: float, jobs: Sequence[Work]) -> None:
        nonlocal short
        pool(now, jobs)
        short += wanted(now) - pool.served

    sizers: Mapping[str, tuple[str, Sizer]] = {
        "own": (GREY, fixed(64)), "elastic": (ORANGE, Allocated([_place(64)])), "lent": (BLUE, lent),
    }  # fmt: skip
    for name, (colour, sizer) in sizers.items():
        runs[name] = _day_of_jobs()
        seen = play(runs[name], sizer, 3 * DAY, 10.0)
        lines.append(Line(name, colour, [(time / 3_600, float(units)) for time, units in seen if time < DAY][::30]))
    queue = {name: statistics.fmean((job.began or 0.0) - job.submitted for job in jobs) for name, jobs in runs.items()}
    whole = {name: statistics.fmean((job.ended or 0.0) - job.submitted for job in jobs) for name, jobs in runs.items()}
    figures = [
        *(Figure(f"{name}: mean time in the queue", queue[name], "s") for name in runs),
        *(Figure(f"{name}: mean time to completion", whole[name], "s") for name in runs),
        Figure("queueing, own / lent (Lyra 1.53)", queue["own"] / max(queue["lent"], 1.0), "times", 1.53, least=True),
        Figure("completion, own / lent (Lyra 1.48)", whole["own"] / whole["lent"], "times", 1.48, least=True),
        Figure("completion, elastic / lent", whole["elastic"] / whole["lent"], "times"),
        Figure("serving: replicas that were not granted", short, "", 0.0),
    ]
    return ScenarioResult(
        "lending", "64 GPUs for training and 64 for serving: apart (own: fixed sizes; elastic: half to all), and lent.",
        figures, [Chart("GPUs that train", "hours", lines)],
    )  # fmt: skip


def fleet() -> ScenarioResult:
    """Compare the bill of a shared pool with nodes for the peak of each model."""
    figures = []
    for seed in (1, 2, 3):
        found = bill(make_fleet(seed=seed))
        figures += [
            Figure(f"fleet {seed}: nodes for each model's peak", found.own, ""),
            Figure(f"fleet {seed}: nodes of the pool", found.pool, ""),
            Figure(f"fleet {seed}: mean nodes in use", found.occupied, ""),
            Figure(f"fleet {seed}: wanted replicas not granted", 100.0 * found.missing, "%", 0.0),
            Figure(f"fleet {seed}: cheaper by", found.saved, "%", 30.0, least=True),
        ]
    return ScenarioResult(
        "fleet", "24 models for a day: one pool of nodes with 8 GPUs, against nodes of their own.", figures
    )


SCENARIOS: Mapping[str, Sequence[Callable[[], ScenarioResult]]] = {
    "edl": (edl_case_1, edl_case_2),
    "elasticdl": (elasticdl,),
    "volcano": (volcano, volcano_reservation),
    "kueue": (kueue,),
    "lending": (lending,),
    "fleet": (fleet,),
}


def _near(what: str, value: float, published: float, most: float, unit: str) -> list[Figure]:
    """Return a value of the calibration, and how far it is from the published one."""
    return [Figure(what, value, unit), Figure("  from that", abs(value - published), unit, most)]


def _place(units: int) -> Place:
    return Place("all", RESOURCE, units)


def _last(jobs: Sequence[Work]) -> float:
    return max(math.inf if job.ended is None else job.ended for job in jobs)


def _trainers(seen: edl.Seen) -> list[tuple[float, list[int]]]:
    return list(zip(seen.times, seen.trainers, strict=True))


def _day_of_jobs(interval: float = 260.0, seed: int = 1) -> list[Work]:
    """Return jobs of 2 to 16 GPUs that arrive at random over a day; each runs with half of them, too."""
    chance, jobs, now = random.Random(seed), list[Work](), 0.0
    while now < DAY:
        most = chance.choice((2, 4, 8, 8, 16))
        work = chance.lognormvariate(7.0, 1.0) * most
        jobs.append(Work(f"Job team/{len(jobs):04d}", now, work, most // 2, most, 30.0))
        now += chance.expovariate(1.0 / interval)
    return jobs


def _ends_without_gangs(jobs: int, slots: int, pods: int) -> int:
    """Return the jobs that end if the Pods of all jobs get slots by turns and hold them: those with all their Pods."""
    held = [0] * jobs
    for number in range(jobs * pods):
        if sum(held) < slots:
            held[number % jobs] += 1
    return jobs if jobs * pods <= slots else sum(count == pods for count in held)
