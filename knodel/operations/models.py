"""Operations on models: deploy, read, wait, delete, events, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from clusters.base.objects import EVENT, MODEL, uid_of
from knodel.operations.core import ClientCore, check_name, check_timeout
from knodel.results.explanation import Explanation
from knodel.results.model import LogLine, Model, ModelHistory, ModelList, ModelNoticeList
from serving.client.effects import Call, Effect, Item, Items, each, work
from serving.client.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from serving.client.models.logs import ReplicaLine

DEPLOY_TIMEOUT = 300.0  # s
DELETE_TIMEOUT = 60.0  # s


def deploy(
    core: ClientCore,
    model: Any,
    name: str,
    *,
    example: Any = None,
    version: str | None = None,
    format: str | None = None,
    rollout: bool | Mapping[str, Any] | None = None,
    canary: int | None = None,
    min_replicas: int | None = None,
    max_replicas: int | None = None,
    gpu: int | None = None,
    gpu_fraction: float | None = None,
    gpu_resource: str | None = None,
    gpu_types: Sequence[str] | None = None,
    priority: int | None = None,
    weight: float | None = None,
    digest: str | None = None,
    secret: str | None = None,
    llm: Mapping[str, Any] | None = None,
    allow_code: bool = False,
    wait: bool = True,
    timeout: float = DEPLOY_TIMEOUT,
) -> Call[Model]:
    """Deploy a model under a name, or a new version of it, and return it once it is ready.

    `model` is a URI, the path of a file or folder, a trained model in memory (see `knodel.saving`), or None to change
    only the given fields. Local files are copied by their content: the version serves the copy even if they change.
    For a cluster they are uploaded. Fields that are not given keep their values.

    `example` has a few rows for the warm-up of an object in memory. `version` is a label. `rollout=True` rolls the
    version out in judged steps, and a dict sets fields of `spec.rollout`, such as `{"steps": [10, 100]}`. `canary`
    gives it a percentage. `digest` is the expected one of the files, `secret` the name of the Secret with credentials.
    `gpu` is the number of GPUs of each replica, or `gpu_fraction` a part of one, on one machine. `gpu_resource` is the
    name of their resource, and `gpu_types` are the types that will do, the best first. `priority` and `weight` decide
    who gets GPUs where not all fit.
    `llm` has options of a language model, the fields of `spec.llm` to change, such as `{"contextLength": 8192}`.
    `allow_code` is your consent that servers run the code of the object.
    `wait=False` returns at once. `timeout` is in seconds.

    Raises Invalid for refused fields or files, Conflict for a concurrent change, TimedOut, ModelError.

    Example:
        client.deploy("iris.onnx", "iris")
        client.deploy(LogisticRegression().fit(X, y), "iris", example=X[:2], version="7", rollout=True)
    """
    from serving.client.models.deploying import DeployFields
    from serving.client.models.deploying import deploy as deploy_files
    from serving.client.models.gpu_fields import gpu_fields

    seconds, ref = check_timeout(timeout), core.platform()
    check_name(name)
    if not isinstance(rollout, bool | Mapping | NoneType):
        raise UsageError(f"rollout is {rollout!r}: give True, False, or a dict of fields of spec.rollout")
    if not isinstance(llm, Mapping | NoneType):
        raise UsageError(f"llm is {llm!r}: give a dict of fields of spec.llm")
    if isinstance(gpu_types, str):
        raise UsageError(f"gpu_types is {gpu_types!r}: give a list, as in [{gpu_types!r}]")
    fields = DeployFields(
        None, digest, format, secret, version, canary, rollout, min_replicas, max_replicas, llm,
        resources=gpu_fields(gpu, gpu_fraction, gpu_resource, gpu_types), priority=priority, weight=weight,
    )  # fmt: skip
    api = yield from core.calls(seconds)
    run = partial(deploy_files, api, ref, name, core.namespace, wait=seconds if wait else None)
    if model is None or is_location(model):
        if example is not None:
            raise UsageError("an example is only for an object in memory: add example.json to the files of the model")
        deployed = yield from run(fields._replace(uri=None if model is None else str(model)))
    else:
        deployed = yield from _deploy_object(run, fields, model, name, example, allow_code)
    return (yield from core.model(deployed.model))


def is_location(model: Any) -> bool:
    """Return whether a model is a URI or a path."""
    return isinstance(model, str | Path)


def _deploy_object(
    run: Any, fields: Any, model: Any, name: str, example: Any, allow_code: bool
) -> Generator[Effect, Any, Any]:
    import tempfile

    from knodel.saving.save import save

    folder = yield from work(lambda: tempfile.TemporaryDirectory(prefix="knodel-"))
    try:
        saved = yield from work(lambda: save(model, Path(folder.name) / name, example=example, allow_code=allow_code))
        chosen = fields.model_format or saved.model_format
        return (yield from run(fields._replace(uri=str(saved.path), model_format=chosen)))
    finally:
        folder.cleanup()


def get(core: ClientCore, name: str) -> Call[Model]:
    """Return a model. Raises NotFound."""
    return (yield from core.model((yield from core.get(name))))


def models(core: ClientCore, *, all_namespaces: bool = False) -> Call[ModelList]:
    """Return the models of the client's namespace, or of all namespaces."""
    api = yield from core.calls()
    items = (yield from api.list(MODEL, None if all_namespaces else core.namespace))["items"]
    return ModelList((yield from core.models(items)))


def wait(core: ClientCore, name: str, *, timeout: float = DEPLOY_TIMEOUT) -> Call[Model]:
    """Wait until the newest version of a model is ready, and return the model.

    Raises NotFound, TimedOut after `timeout` seconds, KnodelError as soon as the version has failed for good.
    """
    from serving.client.models.waiting import wait_until_ready

    api = yield from core.calls(check_timeout(timeout))
    return (yield from core.model((yield from wait_until_ready(api, check_name(name), core.namespace, timeout))))


def delete(core: ClientCore, name: str, *, wait: bool = True, timeout: float = DELETE_TIMEOUT) -> Call[None]:
    """Delete a model with all its versions; with `wait`, return once its replicas have ended.

    Raises NotFound, TimedOut after `timeout` seconds.
    """
    from serving.client.models.deletion import delete_model

    api = yield from core.calls(check_timeout(timeout))
    yield from delete_model(api, check_name(name), core.namespace, timeout if wait else None)


def history(core: ClientCore, name: str) -> Call[ModelHistory]:
    """Return the versions of a model with their causes and outcomes, oldest first. Raises NotFound."""
    from knodel.results.reading import history_from

    return history_from((yield from core.get(name)))


def explain(core: ClientCore, name: str) -> Call[Explanation]:
    """Explain the number of replicas and the traffic of a model. Raises NotFound."""
    from knodel.results.reading import explanation_from
    from serving.client.models.explaining import pool_notes, traffic_rule
    from serving.client.replicas import replica_problems

    api = yield from core.calls()
    obj = yield from api.get(MODEL, check_name(name), core.namespace)
    split = (obj.get("status") or {}).get("traffic")
    rule = traffic_rule(obj) if split else "no traffic, since no version has been ready yet"
    problems = yield from replica_problems(api, name, core.namespace)
    return explanation_from((yield from core.model(obj)), rule, problems, (yield from pool_notes(api, obj)))


def events(core: ClientCore, name: str) -> Call[ModelNoticeList]:
    """Return the Kubernetes Events about a model, oldest first. Raises NotFound."""
    from knodel.results.reading import notice_from

    api = yield from core.calls()
    obj = yield from api.get(MODEL, check_name(name), core.namespace)
    found = (yield from api.list(EVENT, core.namespace, fields=f"involvedObject.uid={uid_of(obj)}"))["items"]
    return ModelNoticeList(name, tuple(sorted(map(notice_from, found), key=lambda notice: notice.at)))


def logs(
    core: ClientCore,
    name: str,
    *,
    follow: bool = False,
    tail: int | None = None,
    revision: str = "",
    previous: bool = False,
) -> Items[LogLine]:
    """Yield the log lines of a model's replicas, of all versions or of `revision` (a name or a version label).

    `follow` continues with new lines, also of new replicas, until the model is deleted. `tail` limits the lines of each
    replica. `previous` reads containers before their last restart. On one machine, a model without replicas has the
    logs of those that ended in the last day. Raises NotFound, also without any log.

    Example:
        for line in client.logs("iris", follow=True):
            print(line.replica, line)
    """
    from serving.client.models.logs import logs as read_logs

    api, ref = (yield from core.calls()), core.platform()
    lines = read_logs(
        api, check_name(name), core.namespace, state=None if ref.kube else ref.state,
        follow=follow, tail=tail, revision=revision, previous=previous,
    )  # fmt: skip

    def show(line: ReplicaLine) -> Generator[Item[LogLine], None, bool]:
        yield Item(LogLine(line.replica, line.line.decode("utf-8", "replace").rstrip("\r\n")))
        return False

    yield from each(lines, show)


def emit_training_completed(
    core: ClientCore,
    name: str,
    storage_uri: str | os.PathLike[str],
    *,
    version: str = "",
    metrics: Mapping[str, Any] | None = None,
    digest: str = "",
    format: str = "",
    id: str = "",
    source: str = "",
    url: str = "",
    secret: str = "",
    wait: float | None = None,
) -> Call[str]:
    """Emit an event that `storage_uri` is the newest version of a model, and return the id of the event.

    `url` is the webhook: by default KNODEL_EVENTS_URL, else that of the platform of this machine. The other arguments
    are those of `knodel.emit_training_completed`, which needs no platform. Raises NotEmitted, ValueError.
    """
    import os

    from eventing.emit import URL
    from eventing.emit import emit_training_completed as emit

    webhook = url or os.environ.get(URL, "")
    if not webhook and core.ref is not None and core.ref.kube is None:
        webhook = yield from work(lambda: _webhook(core))
    return (
        yield from work(
            lambda: emit(
                check_name(name), storage_uri, namespace=core.namespace, version=version, metrics=metrics,
                digest=digest, model_format=format, id=id, source=source, url=webhook, secret=secret, wait=wait,
            )
        )
    )  # fmt: skip


def _webhook(core: ClientCore) -> str:
    from serving.types.settings.state import Facts

    facts = Facts.read(core.platform().state)
    return f"http://{facts.control}/events" if facts is not None else ""
