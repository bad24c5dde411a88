"""The locust file: users that send inference requests or chats to one model, in a shape of load.

    locust -f loadtests/locustfile.py -H http://127.0.0.1:8080 --model magika --shape burst --rate 50

A row of the statistics is named after the version that answered (header `knodel-revision`): `infer` or `chat` for whole
responses, for chats also `TTFT` (time to the first token) and `TPOT` (time per token after it).

Locust patches the standard library when it is imported. This folder is therefore not a package: tools that import every
module of the product do not import this file. `knodel bench` runs it in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gevent
import gevent.event
import gevent.os
import gevent.ssl
from geventhttpclient.client import HTTPClientPool
from locust import FastHttpUser, LoadTestShape, events, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, ResponseContextManager
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.stats import StatsEntry, StatsError

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.inference.failures import reason_of
from serving.client.inference.token_times import TokenTimes
from serving.loadtest import arguments
from serving.loadtest.load import Load, make_load
from serving.loadtest.report import NO_VERSION, REQUESTS, TOTAL, Report, Row, missed_limits
from serving.loadtest.target import Target, find_target, ingress_of, read_body
from serving.loadtest.traces import read_arrivals

OK = 200
REVISION = "knodel-revision"
LONGEST_ERROR = 200  # characters
MS = 1000.0
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
SPREAD = (number * GOLDEN % 1.0 for number in itertools.count())
"""Numbers from 0 to 1, of which any sequence is spread evenly (an additive recurrence with the golden ratio)."""


class Failure(Exception):
    """A failed request. Its text is a line of the statistics, so it has no part that differs between requests."""

    def __repr__(self) -> str:
        return str(self)


class ModelUser(FastHttpUser):
    """A user that sends its request again and again, at a constant rate. `prepare` sets the class attributes."""

    abstract = True
    target: ClassVar[Target]
    load: ClassVar[Load]

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._due = 0.0

    def wait_time(self) -> float:
        """Return the seconds until the next request, as `constant_throughput`.

        The first wait is a part of that time, another one for each user, so that users that start together spread.
        """
        now, pause = time.monotonic(), 1.0 / self.load.pace
        self._due = max(now, self._due + pause) if self._due else now + pause * next(SPREAD)
        return self._due - now

    @task
    def act(self) -> None:
        """Send a request, except at the start: locust does not wait before the first call."""
        if self._due:
            self.send()

    def send(self) -> None:
        """Send one request and record its times."""
        raise NotImplementedError

    def post(self, **options: Any) -> ResponseContextManager:
        """Return the response, or its beginning with `stream`."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self.target.ingress.headers}
        body: Any = self.target.body  # locust's type excludes bytes, which it sends
        response = self.client.post(
            self.target.path, data=body, headers=headers, name=NO_VERSION, catch_response=True,
            allow_redirects=False, **options,
        )  # fmt: skip
        version = response.headers.get(REVISION) if response.headers is not None else None
        response.request_meta.update(request_type=self.target.kind, name=version or NO_VERSION)
        return response


class InferUser(ModelUser):
    """Sends inference requests of the Open Inference Protocol."""

    def send(self) -> None:
        """Send one request and record its time."""
        with self.post() as response:
            if failure := failure_of(response):
                response.failure(failure)


class ChatUser(ModelUser):
    """Streams chats by OpenAI's protocol."""

    def send(self) -> None:
        """Send one chat; record the time of the whole answer, to its first token, and per token after it."""
        began = time.perf_counter()
        times = TokenTimes(began)
        with self.post(stream=True) as response:
            failure = failure_of(response) or read_answer(response, times)
            response.request_meta["response_time"] = MS * (time.perf_counter() - began)
            if failure:
                response.failure(failure)
                return
        for kind, seconds in (("TTFT", times.to_first), ("TPOT", times.per_token)):
            if seconds is not None:
                self.environment.events.request.fire(
                    request_type=kind, name=response.request_meta["name"], response_time=MS * seconds,
                    response_length=0, exception=None, context={},
                )  # fmt: skip


class Shape(LoadTestShape):
    """The number of users over time, for the rate of `--shape`. `prepare` sets the load."""

    use_common_options = True
    load: ClassVar[Load]

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users now, and the rate at which they start: all at once; None at the end."""
        moment: float = self.get_run_time()  # type: ignore[no-untyped-call]
        if moment >= self.load.seconds:
            return None
        users = self.load.users_at(moment)
        return users, float(max(1, self.load.peak_users))


def failure_of(response: ResponseContextManager) -> Failure | None:
    """Return the failure of a response, None for a successful one."""
    status = response.status_code
    if status == OK:
        return None
    if not status:
        return Failure(one_line(f"no response: {getattr(response, 'error', '')}")[:LONGEST_ERROR])
    reason, _ = reason_of(response.content or b"")
    return Failure(one_line(f"{status}: {reason}")[:LONGEST_ERROR])


def read_answer(response: ResponseContextManager, times: TokenTimes) -> Failure | None:
    """Read the stream of an answer to its end. Return the failure of one that breaks off."""
    stream, is_complete = response.stream, False
    try:
        while line := stream.readline(b"\n"):
            data = bytes(line).removeprefix(b"data:").strip()
            if len(data) == len(bytes(line).strip()) or not data:
                continue  # comments, names of events, and the empty lines between them
            if data == b"[DONE]":
                is_complete = True
                continue
            chunk = json.loads(data)
            if chunk.get("error"):
                return Failure(one_line(f"broke off: {reason_of(data)[0]}")[:LONGEST_ERROR])
            times.observe(chunk, time.perf_counter())
    except (*FAILURE_EXCEPTIONS, ValueError, AttributeError) as error:
        return Failure(one_line(f"broke off: {error}")[:LONGEST_ERROR])
    finally:
        stream.release()
    return None if is_complete or times.reason else Failure("broke off: the stream has no end")


def add_options(parser: Any) -> None:
    """Add the options of this file."""

    def add(*names: str, **settings: Any) -> None:
        parser.add_argument(*names, include_in_web_ui=False, **settings)  # the web UI cannot change them

    add("--model", metavar="NAME", help="Name of the model.")
    add("--namespace", metavar="NAME", default="default", help="Its namespace, at a platform [%(default)s].")
    add("--kind", choices=("auto", "infer", "chat"), default="auto",
        help="Inference requests, or chats with a language model [auto: what the model has].")  # fmt: skip
    add("--body", metavar="FILE", help="JSON of the request [the example of the model, or a short chat].")
    add("--header", metavar="'NAME: VALUE'", type=_option(arguments.parse_header), action="append", default=[],
        help="Header of each request; may be repeated.")  # fmt: skip
    add("--shape", choices=arguments.SHAPES, default="steady", help="Rate over time [%(default)s].")
    add("--rate", metavar="RATE", type=_option(arguments.parse_rate), default=arguments.RATE,
        help="Requests per second: peak of burst and diurnal, average of a trace [%(default)g].")  # fmt: skip
    add("--trace", metavar="FILE", help="CSV file with a column TIMESTAMP, for --shape trace.")
    add("--request-timeout", metavar="DURATION", type=_option(arguments.parse_seconds), default=arguments.TIMEOUT,
        help="Maximum time of a response [60s].")  # fmt: skip
    add("--max-p95", metavar="DURATION", type=_option(arguments.parse_latency),
        help="Exit with 1 if the 95th percentile of requests is higher; a number is in ms.")  # fmt: skip
    add("--max-errors", metavar="PERCENT", type=_option(arguments.parse_share), default=0.0,
        help="Exit with 1 if more requests fail [%(default)g].")  # fmt: skip
    add("--report", metavar="FILE", help="Write percentiles by version to this file, as JSON.")
    add("--end-with-stdin", action="store_true", help="End the test at the end of stdin.")


def _option(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of argparse whose error has the message of `parse`."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def prepare(environment: Environment, **_: Any) -> None:
    """Find the model and set the load of the users. Exit with 1 and a message on stderr if that is not possible."""
    options: Any = environment.parsed_options
    try:
        target = _target(options, environment)
        recorded = _recorded(options)
    except KnodelError as error:
        sys.exit(one_line(str(error)))
    seconds = float(options.run_time or arguments.SECONDS)
    load = make_load(options.shape, options.rate, seconds, target.kind, recorded)
    if not load.peak_users:
        sys.exit("the load has no request: choose a longer --run-time or a higher --rate")
    user: type[ModelUser] = ChatUser if target.kind == "chat" else InferUser
    ModelUser.target, ModelUser.load, Shape.load = target, load, load
    timeouts = {"network_timeout": options.request_timeout, "connection_timeout": options.request_timeout}
    server, secure = target.ingress.endpoint, {}
    if server.tls:
        secure = {"ssl_options": {"server_hostname": server.tls_name}, "ssl_context_factory": _tls_context}
    ModelUser.client_pool = HTTPClientPool(concurrency=load.peak_users, **timeouts, **secure)
    environment.host = target.url
    environment.user_classes = [user]
    environment.stop_timeout = environment.stop_timeout or options.request_timeout  # users finish their request
    Test.prepared.set()
    if options.end_with_stdin:
        gevent.spawn(_end_with_stdin, environment)


def _tls_context() -> gevent.ssl.SSLContext:
    return gevent.ssl.create_default_context()


def _target(options: argparse.Namespace, environment: Environment) -> Target:
    if not options.model:
        raise KnodelError("no model is given: use --model NAME")
    if not environment.host:
        raise KnodelError("no server is given: use -H URL, such as -H http://127.0.0.1:8080")
    body = read_body(Path(options.body)) if options.body else b""
    ingress = ingress_of(environment.host, dict(options.header))
    kind, timeout = options.kind, options.request_timeout
    if kind == "auto" and len(environment.user_classes) == 1:  # given on the command line
        kind = "chat" if environment.user_classes[0] is ChatUser else "infer"
    return BlockingDriver(HttpTransport()).run(
        find_target(ingress, options.model, options.namespace, kind, body, timeout)
    )


def _recorded(options: argparse.Namespace) -> list[float]:
    if (options.shape == "trace") != (options.trace is not None):
        raise KnodelError("--shape trace and --trace FILE belong together")
    return read_arrivals(Path(options.trace)) if options.trace else []


def _end_with_stdin(environment: Environment) -> None:
    """End the test when whoever holds the other end of stdin closes it or ends."""
    while gevent.os.tp_read(0, 1):
        pass
    if environment.runner is not None:
        environment.runner.quit()


class Test:
    """The state of the test: start and end on the monotonic clock; the end is None while it runs."""

    prepared = gevent.event.Event()
    began: float | None = None
    ended: float | None = None


def note_start(**_: Any) -> None:
    """Note when the test starts. A worker may get the order to start before it is prepared."""
    Test.prepared.wait()
    Test.began, Test.ended = time.monotonic(), None


def note_end(**_: Any) -> None:
    """Note when the test ends. Requests in flight are waited for afterwards."""
    Test.ended = time.monotonic()


def conclude(environment: Environment, **_: Any) -> None:
    """Set the exit code by the limits, and write the report."""
    options: Any = environment.parsed_options
    if Test.began is None or isinstance(environment.runner, WorkerRunner):
        return
    seconds = min(Shape.load.seconds, (Test.ended or time.monotonic()) - Test.began)
    report = _report(environment, options, seconds)
    environment.process_exit_code = 1 if report.missed else 0
    for line in report.missed:
        print(line, file=sys.stderr)
    if options.report:
        Path(options.report).write_text(json.dumps(report.to_json()))


def _report(environment: Environment, options: argparse.Namespace, seconds: float) -> Report:
    entries = sorted(environment.stats.entries.values(), key=lambda entry: (entry.name, _order(entry.method)))
    totals: dict[str, StatsEntry] = {}
    for entry in entries:
        total = totals.setdefault(entry.method, StatsEntry(environment.stats, TOTAL, entry.method))
        total.extend(entry)
    rows = [_row(entry) for entry in (*entries, *sorted(totals.values(), key=lambda entry: _order(entry.method)))]
    sent = sum(row.requests for row in rows if row.version == TOTAL and row.kind in REQUESTS)
    errors = sorted(environment.stats.errors.values(), key=lambda error: (-error.occurrences, error.name))
    return Report(
        round(seconds, 3), Shape.load.average(0.0, seconds), sent / seconds if seconds else 0.0, rows,
        {_error_text(error): error.occurrences for error in errors},
        missed_limits(rows, options.max_p95, options.max_errors),
    )  # fmt: skip


def _error_text(error: StatsError) -> str:
    return str(error.error) if error.name == NO_VERSION else f"{error.name}: {error.error}"


def _order(kind: str) -> int:
    return ("infer", "chat", "TTFT", "TPOT").index(kind)


def _row(entry: StatsEntry) -> Row:
    p50, p95, p99 = (float(entry.get_response_time_percentile(share)) for share in (0.5, 0.95, 0.99))
    longest = float(math.ceil(entry.max_response_time))
    return Row(entry.name, entry.method, entry.num_requests, entry.num_failures, p50, p95, p99, longest)


LISTENERS = (
    (events.init_command_line_parser, add_options),
    (events.init, prepare),
    (events.test_start, note_start),
    (events.test_stopping, note_end),
    (events.quitting, conclude),
)
for hook, listener in LISTENERS:
    hook.add_listener(listener)  # type: ignore[no-untyped-call]
