"""The parser of the activator's gauges in Prometheus' text format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.metrics.activator_page import NO_REQUESTS, ActivatorRequests, BadPage, PageReader
from clusters.base.objects import Key

ONE, TWO = Key("shop", "search-00001"), Key("shop", "search-00002")
SCOPE = 'otel_scope_name="knative.dev/serving/pkg/activator",otel_scope_schema_url="",otel_scope_version=""'


def line(gauge: str, key: Key, value: str) -> str:
    labels = f'k8s_namespace_name="{key.namespace}",kn_revision_name="{key.name}",{SCOPE}'
    return f"kn_revision_request_{gauge}{{{labels}}} {value}\n"


def page(*lines: str) -> bytes:
    head = "# HELP kn_revision_request_queued Number of requests\n# TYPE kn_revision_request_queued gauge\n"
    return (head + "".join(lines)).encode()


OVERFLOW = 'kn_revision_request_queued{otel_metric_overflow="true"} %d\n'


def test_what_waits_and_what_passes_is_read_by_revision() -> None:
    read = PageReader().read(
        page(line("active", ONE, "2"), line("queued", ONE, "1"), line("queued", TWO, "0"), line("active", TWO, "1e+06"))
    )
    assert read.held == {ONE: ActivatorRequests(1, 2), TWO: ActivatorRequests(0, 1_000_000)}
    assert read.of(Key("shop", "other-00001")) is NO_REQUESTS


def test_an_activator_that_had_no_request_yet_has_an_empty_page() -> None:
    assert PageReader().read(b"").held == {}


def test_the_same_page_is_the_same_object_and_a_changed_line_is_seen() -> None:
    reader = PageReader()
    quiet = page(line("queued", ONE, "0"), line("queued", TWO, "0"))
    assert reader.read(quiet) is reader.read(bytes(quiet))
    assert reader.read(page(line("queued", ONE, "0"), line("queued", TWO, "3"))).held == {TWO: ActivatorRequests(3, 0)}
    assert reader.read(quiet).held == {}


def test_labels_may_be_escaped_stand_in_any_order_and_contain_what_looks_like_an_end() -> None:
    text = r'kn_revision_request_queued{a="\"} 7",kn_revision_name="x\\y",b="\n",k8s_namespace_name="n"} 4' + "\n"
    assert PageReader().read(text.encode()).held == {Key("n", "x\\y"): ActivatorRequests(4, 0)}


def test_other_metrics_are_passed_over() -> None:
    other = 'go_gc_duration_seconds{quantile="0.5"} NaN\nprocess_open_fds 12\nkn_revision_request_concurrency 0.5\n'
    assert PageReader().read(page(other, line("queued", ONE, "1"))).held == {ONE: ActivatorRequests(1, 0)}


@pytest.mark.fault("A3")
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308", "0.5", "1000001", "", "many", "0x1", "1 2"])
def test_a_count_that_is_none_refuses_the_page(value: str) -> None:
    with pytest.raises(BadPage):
        PageReader().read(page(line("queued", TWO, "0"), line("queued", ONE, value)))


@pytest.mark.parametrize(
    "text",
    [
        b"busy\n",
        b"<html>503</html>",
        b"\xff\xfe\n",
        b"kn_revision_request_queued 1\n",
        b'kn_revision_request_queued{kn_revision_name="x"} 1\n',
        b'kn_revision_request_queued{kn_revision_name="x} 1\n',
        b'kn_revision_request_queued{kn_revision_name=x,k8s_namespace_name="n"} 1\n',
    ],
)
def test_what_is_no_page_is_refused(text: bytes) -> None:
    with pytest.raises(BadPage):
        PageReader().read(text)


def test_after_a_refused_page_the_next_one_is_read_anew() -> None:
    reader = PageReader()
    before = reader.read(page(line("queued", ONE, "1")))
    with pytest.raises(BadPage):
        reader.read(b"busy\n")
    assert reader.read(page(line("queued", ONE, "1"))) is before


def test_revisions_that_are_not_counted_apart_may_all_be_the_one_that_waits() -> None:
    read = PageReader().read(page(line("queued", ONE, "0"), OVERFLOW % 2))
    assert read.of(ONE) is NO_REQUESTS
    assert read.of(TWO) == ActivatorRequests(2, 0)
    reader = PageReader()
    reader.read(page(line("queued", ONE, "0")))
    assert reader.read(page(line("queued", ONE, "0"), OVERFLOW % 1)).of(ONE) is NO_REQUESTS


@pytest.mark.fault("A3")
@given(st.lists(st.binary(max_size=80) | st.text(max_size=80).map(str.encode), max_size=5).map(b"\n".join))
def test_any_bytes_are_a_page_or_refused(text: bytes) -> None:
    try:
        read = PageReader().read(text)
    except BadPage:
        return
    assert all(held.queued >= 0 and held.active >= 0 for held in read.held.values())


@given(st.dictionaries(st.text("abc-", min_size=1, max_size=5), st.integers(0, 10_000), max_size=20))
def test_what_is_written_is_read(counts: dict[str, int]) -> None:
    text = page(*(line("queued", Key("n", name), str(count)) for name, count in counts.items()))
    expected = {Key("n", name): ActivatorRequests(count, 0) for name, count in counts.items() if count}
    assert PageReader().read(text).held == expected
