"""The text format of Prometheus."""

from __future__ import annotations

from clusters.base.objects import Key
from clusters.net.exposition import render
from clusters.runtime.controller import Controller
from clusters.runtime.manager.metrics import Family, controller_families, one, process_families


def test_a_page_has_help_type_and_samples_with_escaped_labels() -> None:
    page = render([Family("a_total", "counter", "Things.", (({"x": 'q"\\\n'}, 3.0), ({}, 0.5)))])

    assert page == '# HELP a_total Things.\n# TYPE a_total counter\na_total{x="q\\"\\\\\\n"} 3\na_total 0.5\n'


def test_the_process_tells_of_itself() -> None:
    values = {family.name: family.samples[0][1] for family in process_families()}

    assert values["process_resident_memory_bytes"] > 1e6
    assert values["process_cpu_seconds_total"] > 0
    assert values["process_open_fds"] > 2


async def test_passes_are_counted_by_result() -> None:
    async def reconcile(key: Key) -> None:
        if key.name == "bad":
            raise ValueError("no")

    controller = Controller("c", reconcile)
    for name in ("good", "bad", "good"):
        await controller._pass(Key("", name))

    page = render(controller_families([controller]))

    assert 'knodel_reconcile_total{controller="c",result="success"} 2\n' in page
    assert 'knodel_reconcile_total{controller="c",result="error"} 1\n' in page
    assert 'knodel_workqueue_depth{controller="c"} 0\n' in page


def test_one_is_a_family_of_a_single_sample() -> None:
    assert render([one("up", "gauge", "Up.", 1)]).endswith("\nup 1\n")
