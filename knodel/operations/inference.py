"""The operation `predict`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from clusters.base.errors import KnodelError
from knodel.inference.inputs import InputTensor, inputs_of, is_raw_request, row_count, rows_of
from knodel.inference.metadata import ModelMetadata, metadata_from
from knodel.inference.sending import Destination, error_of, send
from knodel.inference.wire import decode, encode, to_json
from knodel.operations.core import ClientCore, check_name, check_timeout
from knodel.results.prediction import Prediction, PredictionOutput
from serving.client.effects import (
    Call,
    HttpAnswer,
    Item,
    Items,
    Spawn,
    Tell,
    now,
    receive,
)
from serving.client.errors import ClientError, ModelError, UsageError

TIMEOUT = 610.0  # s; a little above the maximum timeout of a Model
PARALLEL = 4
RECENT = 50  # durations of calls that are kept for each model
STALE = frozenset({400, 404})
"""Statuses after which the metadata of a model is read again: its inputs may have changed."""
REVISION = "knodel-revision"


class _Request(NamedTuple):
    """An inference request of one model: the model with its limit in seconds, and the fields of the body."""

    to: Destination
    outputs: Sequence[str] | None
    parameters: Mapping[str, Any] | None
    request_id: str

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.to.name

    @property
    def tag(self) -> str:
        """The tag of the version; empty without one."""
        return self.to.tag


def predict(
    core: ClientCore,
    name: str,
    data: Any,
    *,
    tag: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    batch_size: int | None = None,
    parallel: int = PARALLEL,
    timeout: float = TIMEOUT,
    request_id: str = "",
) -> Call[Prediction]:
    """Send data to a model and return its outputs; the traffic split chooses the version, or `tag` does.

    `data` is a data frame of pandas or polars, a NumPy array, a list, a dict of these by name of input, or a whole
    request of the Open Inference Protocol as a dict. Names and datatypes of inputs are those of the model's metadata.

    `batch_size` splits the rows into requests of at most this size, `parallel` of them at a time, and joins the
    results in order. `outputs` are the names of the wanted outputs, `parameters` those of the request. `timeout` limits
    each request in seconds.

    A request is sent again only if it certainly was not executed: the connection was refused, or the server sent
    Retry-After. Raises Invalid for data that the model does not take, NotFound, ModelError for the error of a model,
    Unreachable if the platform does not respond; its message tells whether the request may have run.

    Example:
        answer = client.predict("iris", [[5.1, 3.5, 1.4, 0.2]])
        answer["output-0"], answer.to_pandas()
    """
    to = Destination(check_name(name), "" if tag is None else check_name(tag, "tag"), check_timeout(timeout))
    request = _Request(to, outputs, parameters, request_id)
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise UsageError(f"batch_size is {batch_size!r}: give a number of rows, such as 1000")
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
        raise UsageError(f"parallel is {parallel!r}: give a number of requests, such as {PARALLEL}")
    if isinstance(outputs, str):
        raise UsageError(f"outputs is a text: give a list of names, such as [{outputs!r}]")
    if not isinstance(parameters, Mapping | NoneType):
        raise UsageError(f"parameters is a {type(parameters).__name__}: give a dict")
    began = yield from now()
    if is_raw_request(data):
        if batch_size is not None or outputs is not None or parameters is not None:
            raise UsageError("a whole request has its own fields: omit batch_size, outputs and parameters")
        answer = yield from _send(core, request, {"Content-Type": "application/json"}, to_json(data))
        return _prediction(core, name, [answer], (yield from now()) - began)
    metadata, inputs = yield from _inputs(core, request, data)
    if batch_size is None:
        answers = [(yield from _infer_again_if_stale(core, request, data, metadata, inputs))]
    else:
        rows = row_count(name, inputs, metadata.inputs)
        answers = yield from _send_parts(core, request, inputs, rows, batch_size, parallel)
    for answer in answers:
        _note_revision(core, request, answer)
    return _prediction(core, name, answers, (yield from now()) - began)


def _inputs(core: ClientCore, request: _Request, data: Any) -> Call[tuple[ModelMetadata, list[InputTensor]]]:
    """Return the metadata and the inputs. Data that remembered metadata refuses is checked against new metadata."""
    known = core.metadata.get((request.name, request.tag))
    if known is not None and not known.is_stale:
        try:
            return known, inputs_of(request.name, data, known.inputs)
        except UsageError:
            _forget(core, request)
    metadata = yield from _metadata(core, request)
    return metadata, inputs_of(request.name, data, metadata.inputs)


def _metadata(core: ClientCore, request: _Request) -> Call[ModelMetadata]:
    answer = yield from send(core, request.to, "GET", f"/v2/models/{request.name}", {}, None)
    if answer.status != 200:
        raise (yield from error_of(core, request.to, answer))
    key = request.name, request.tag
    metadata = metadata_from(request.name, answer.content, answer.headers.get(REVISION, ""))
    if (before := core.metadata.get(key)) is not None:
        metadata = ModelMetadata(metadata.inputs, metadata.revisions | before.revisions)
    core.metadata[key] = metadata
    return metadata


def _forget(core: ClientCore, request: _Request) -> None:
    core.metadata.pop((request.name, request.tag), None)
    core.entrances.pop((request.name, request.tag), None)


def _note_revision(core: ClientCore, request: _Request, answer: HttpAnswer) -> None:
    """Forget the metadata when another version answered; after it was read again, both versions count as known."""
    key, revision = (request.name, request.tag), answer.headers.get(REVISION, "")
    known = core.metadata.get(key)
    if known is not None and revision and revision not in known.revisions:
        core.metadata[key] = ModelMetadata(known.inputs, known.revisions | {revision}, is_stale=True)


def _infer_again_if_stale(
    core: ClientCore, request: _Request, data: Any, metadata: ModelMetadata, inputs: Sequence[InputTensor]
) -> Call[HttpAnswer]:
    """Send the request; if it is refused, and the inputs of the model have changed, send it with the new inputs."""
    try:
        return (yield from _infer(core, request, inputs))
    except ClientError as error:
        if error.status not in STALE or core.metadata.get((request.name, request.tag)) is None:
            raise
        _forget(core, request)
        renewed = yield from _metadata(core, request)
        if renewed.inputs == metadata.inputs:
            raise
    return (yield from _infer(core, request, inputs_of(request.name, data, renewed.inputs)))


def _infer(core: ClientCore, request: _Request, inputs: Sequence[InputTensor]) -> Call[HttpAnswer]:
    headers, body = encode(inputs, request.outputs, request.parameters, request.request_id)
    return (yield from _send(core, request, headers, body))


def _send(core: ClientCore, request: _Request, headers: Mapping[str, str], body: bytes) -> Call[HttpAnswer]:
    """Send an inference request and return the response of a model. Raises the error of any other response."""
    answer = yield from send(core, request.to, "POST", f"/v2/models/{request.name}/infer", headers, body)
    if answer.status != 200:
        raise (yield from error_of(core, request.to, answer))
    return answer


def _send_parts(
    core: ClientCore, request: _Request, inputs: Sequence[InputTensor], rows: int, batch_size: int, parallel: int
) -> Call[list[HttpAnswer]]:
    """Send the rows in parts, `parallel` at a time, and return the responses in order.

    Raises the error of the first part that failed, with its rows.
    """
    begins = list(range(0, rows, batch_size)) or [0]
    answers: dict[int, HttpAnswer] = {}
    waiting, running = list(reversed(begins)), 0
    while len(answers) < len(begins):
        while waiting and running < parallel:
            begin = waiting.pop()
            yield Spawn(begin, _part(core, request, rows_of(inputs, begin, begin + batch_size)))
            running += 1
        message = yield from receive()
        if message is None:
            continue
        begin = int(str(message.key))
        if message.error is not None:
            raise _with_rows(message.error, begin, min(begin + batch_size, rows) - 1) from message.error
        if message.ended:
            running -= 1
        else:
            answers[begin] = message.value
            done = min(len(answers) * batch_size, rows)
            yield Tell(f"{request.name}: {done} of {rows} rows ({100 * done // rows} %)")
    return [answers[begin] for begin in begins]


def _part(core: ClientCore, request: _Request, inputs: Sequence[InputTensor]) -> Items[HttpAnswer]:
    yield Item((yield from _infer(core, request, inputs)))


def _with_rows(error: Exception, begin: int, end: int) -> Exception:
    """Return the error of a part with its rows in the message."""
    text = f"rows {begin} to {end}: {error}"
    if isinstance(error, ModelError):
        return ModelError(text, error.status or 0, error.request_id)
    if isinstance(error, ClientError):
        return type(error)(text, error.status)
    return ClientError(text) if isinstance(error, KnodelError) else error


def _prediction(core: ClientCore, name: str, answers: Sequence[HttpAnswer], seconds: float) -> Prediction:
    """Return the outputs of all responses, joined by rows."""
    parts = [decode(name, answer.headers, answer.content) for answer in answers]
    request_id, outputs = parts[-1]
    if len(parts) > 1:
        outputs = _joined(name, [part for _, part in parts])
    headers = answers[-1].headers
    timing = _timing(headers.get("server-timing", ""))
    recent = core.recent.setdefault(name, deque(maxlen=RECENT))
    recent.append(seconds)
    return Prediction(name, headers.get(REVISION, ""), request_id, seconds, tuple(outputs), timing, tuple(recent))


def _joined(name: str, parts: Sequence[Sequence[PredictionOutput]]) -> list[PredictionOutput]:
    """Return the outputs of all parts, joined by rows. Raises ClientError for parts that differ, or have no rows."""
    if len({tuple((one.name, one.datatype, one.shape[1:]) for one in part) for part in parts}) > 1:
        raise ClientError(
            f"the parts of the response of model {name} have different outputs, so they cannot be joined: "
            "its versions differ; give tag, or omit batch_size"
        )
    if scalar := next((one.name for one in parts[0] if not one.shape), ""):
        raise ClientError(f"output {scalar} of model {name} has no rows, so parts cannot be joined: omit batch_size")
    return [_joined_output(several) for several in zip(*parts, strict=True)]


def _joined_output(parts: Sequence[PredictionOutput]) -> PredictionOutput:
    first = parts[0]
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
    if isinstance(first.values, list):
        return PredictionOutput(first.name, first.datatype, shape, [row for part in parts for row in part.values])
    import numpy as np

    return PredictionOutput(first.name, first.datatype, shape, np.concatenate([part.values for part in parts]))


def _timing(header: str) -> dict[str, float]:
    """Return the durations of a Server-Timing header in milliseconds, by name. Pure."""
    found = {}
    for entry in header.split(","):
        name, _, rest = entry.strip().partition(";")
        for parameter in rest.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == "dur" and value.replace(".", "", 1).isdecimal():
                found[name] = float(value)
    return found
