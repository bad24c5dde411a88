"""`knodel bench`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from serving.cli.bench import run_locust, show_report
from serving.cli.context import Session, verb
from serving.cli.entrance import absence_explained, check_names
from serving.cli.names import model_name, tags
from serving.client.errors import ClientError, UsageError
from serving.client.inference.ingress import ingress_target
from serving.loadtest import arguments
from serving.loadtest.load import Kind
from serving.loadtest.rates import Shape
from serving.loadtest.target import find_target, read_body
from serving.loadtest.traces import InvalidTrace, read_arrivals

T = TypeVar("T")
WAKES_WITHIN = 610.0  # s until the first response; a little above the maximum timeout of a Model


@verb(
    "bench",
    examples=[
        ("Send 50 requests per second for a minute", "knodel bench iris --rate 50"),
        ("Fail if a twentieth takes longer than 200 ms", "knodel bench iris --rate 50 --max-p95 200ms"),
        ("Chat in bursts", "knodel bench llm --shape burst --rate 2 --duration 3m"),
        ("Replay recorded requests", "knodel bench iris --shape trace --trace requests.csv --rate 20"),
    ],
)
@model_name()
@click.option("--rate", metavar="RATE", default=f"{arguments.RATE:g}", show_default=True,
              help="Requests per second: peak of burst and diurnal, average of a trace.")  # fmt: skip
@click.option("--duration", metavar="DURATION", default=f"{arguments.SECONDS:g}s", show_default=True,
              help="Duration of the load.")  # fmt: skip
@click.option("--shape", type=click.Choice(arguments.SHAPES), default="steady", show_default=True,
              help="Rate over time.")  # fmt: skip
@click.option("--trace", metavar="FILE", type=click.Path(path_type=Path),
              help="CSV file with a column TIMESTAMP, for --shape trace.")  # fmt: skip
@click.option("--kind", type=click.Choice(("auto", "infer", "chat")), default="auto", show_default=True,
              help="Inference requests, or chats with a language model.")  # fmt: skip
@click.option("--body", metavar="FILE", type=click.Path(path_type=Path),
              help="JSON of the request [the model's example, or a short chat].")  # fmt: skip
@click.option("--tag", metavar="TAG", default="", shell_complete=tags,
              help="Send the requests to the version with this tag.")  # fmt: skip
@click.option("--request-timeout", metavar="DURATION", default=f"{arguments.TIMEOUT:g}s", show_default=True,
              help="Maximum time of a response.")  # fmt: skip
@click.option("--max-p95", metavar="DURATION", help="Fail if the 95th percentile of requests is higher.")
@click.option("--max-errors", metavar="PERCENT", default="0", show_default=True,
              help="Fail if a larger share of requests fails.")  # fmt: skip
def command(
    session: Session, name: str, rate: str, duration: str, shape: Shape, trace: Path | None,
    kind: Kind | Literal["auto"], body: Path | None, tag: str, request_timeout: str, max_p95: str | None,
    max_errors: str,
) -> None:  # fmt: skip
    """Put load on the model NAME with locust, and print percentiles by version.

    Users send inference requests or streamed chats to the address of the model; its traffic split chooses the version.
    Ctrl-C ends the load and prints what was measured. The exit code is 1 if a limit is exceeded.
    """
    check_names(name, tag)
    if importlib.util.find_spec("locust") is None:
        raise ModuleNotFoundError("locust", name="locust")
    seconds = _parsed("--duration", arguments.parse_seconds, duration)
    given: dict[str, Any] = {
        "--rate": _parsed("--rate", arguments.parse_rate, rate),
        "--shape": shape,
        "--run-time": f"{seconds:.0f}",
        "--request-timeout": f"{_parsed('--request-timeout', arguments.parse_seconds, request_timeout):.0f}s",
        "--max-errors": _parsed("--max-errors", arguments.parse_share, max_errors),
    }
    if max_p95 is not None:
        given["--max-p95"] = _parsed("--max-p95", arguments.parse_latency, max_p95)
    if (shape == "trace") != (trace is not None):
        raise UsageError("--shape trace and --trace FILE belong together: give both or neither")
    if trace is not None:
        try:
            read_arrivals(trace)  # before the load starts
        except InvalidTrace as error:
            raise UsageError(f"--trace {error}") from error
        given["--trace"] = trace.absolute()
    request = read_body(body) if body is not None else b""
    with absence_explained(session, name):
        ingress = session.driver.run(ingress_target(session.ref, name, session.namespace, tag))
        target = session.driver.run(find_target(ingress, name, session.namespace, kind, request, WAKES_WITHIN))
    given |= {"--host": target.url, "--model": name, "--kind": target.kind}
    words = [f"{option}={value}" for option, value in given.items()]
    words += [f"--header={header}: {value}" for header, value in target.ingress.headers.items()]
    about = f"{name}: {rate} {target.kind} requests per second, {shape}, for {duration}"
    report, was_interrupted = run_locust(words, target.body, about)
    if session.output.structured:
        of = {"model": name, "namespace": session.namespace, "kind": target.kind, "shape": shape}
        session.output.value({**of, **report.to_json()})
    else:
        show_report(session.output, report)
    if was_interrupted:
        raise KeyboardInterrupt
    if report.missed:
        raise ClientError("; ".join(report.missed))


def _parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """Return the value of an option. Raises UsageError."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from error
