"""Make the revision template: the container of a model server, and annotations with the model. Pure.

Every change of a template creates a revision. So this module must not read scaling fields, which act on existing
revisions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autoscaler.gpu.shapes import ANNOTATION_TYPES
from autoscaler.gpu.units import type_labels
from autoscaler.types import CLASS
from autoscaler.usage.meter import BESIDE_ANNOTATION
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from clusters.base.durations import format_duration
from clusters.base.objects import ANNOTATION_CLASS, ANNOTATION_GPU_FRACTION, NVIDIA_GPU, Object
from clusters.base.pod_queues import queue_metadata
from clusters.base.quantities import format_cores, parse_quantity
from serving.makers import names
from serving.makers.volumes import Mount, adapters, claim, credentials, digests, group_token, scratch, shared_memory
from serving.types.annotations import (
    ANNOTATION_DIGEST,
    ANNOTATION_STORAGE_URI,
    ANNOTATION_VARIANTS,
    ANNOTATION_VERSION,
    ANNOTATION_WORKERS,
    LABEL_GROUP_ROLE,
    LABEL_MODEL,
    LABEL_VARIANT,
)
from serving.types.code import runs_code
from serving.types.llm import NO_LLM, Llm
from serving.types.model import Model, ModelSpec, ServerSpec, Variant, claims_of, loads_adapters
from serving.types.ray import own_service
from serving.types.resources import Resources
from serving.types.settings.runtimes import runtime_of
from serving.types.settings.settings import SIGNALS, ServerSettings, Settings
from serving.types.warm_pool import PoolTemplate
from serving.types.workers import Workers, to_json

CONTAINER = "server"
LEADER = "leader"
"""Value of the label `knodel.dev/group-role`."""
PORT_NAME = "http1"
"""Knative reads the protocol from the port's name."""
READY_PATH = "/v2/health/ready"
LIVE_PATH = "/v2/health/live"
"""503 when every thread of the server hangs in an inference whose caller has left: only a restart ends that."""
LIVE_PERIOD = 30
"""s; an earlier restart has no benefit, and a busy node must not cause one."""
LIVE_TIMEOUT = 10
"""s; short inferences run on the event loop, and a node may give it a twentieth of a core."""
PROBE_PERIOD = 1
"""s; with Knative's default of 10 s, a Pod that misses its first probe would wait that long."""
ALLOW_HOSTS = "KNODEL_ALLOW_HOSTS"
"""Environment variable with the hosts that may have private addresses."""
PROBE_FAILURES = 3
PROBE_TIMEOUT = 1
"""s; the answer needs no I/O."""
INITIAL_SCALE = "1"
"""Replicas that must be ready before the revision is ready. Constant, since minReplicas must not create a revision."""
ANNOTATION_INITIAL_SCALE = "autoscaling.knative.dev/initial-scale"
ANNOTATION_PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"
FULL_DUPLEX = {"features.knative.dev/http-full-duplex": "Enabled"}
"""Without this annotation, queue-proxy may break off a response that begins before queue-proxy has read the request to
its end (golang/go#40747, knative/serving#12387). queue-proxy gets it as a variable, so members of a pool need it too.
"""


def make_template(model: Model, variant: Variant | None, server: ServerSettings) -> Object:
    """Return `spec.template` of a Service or Configuration, without the label of its version."""
    labels = {LABEL_MODEL: model.name} | ({LABEL_VARIANT: variant.name} if variant else {})
    labels |= {LABEL_GROUP_ROLE: LEADER} if model.spec.workers else {}
    resources = _resources(model, variant)
    metadata: Object = {"labels": labels, "annotations": _annotations(model, resources)}
    if resources.gpu:
        add_queue(metadata, model.namespace, server)
    return {"metadata": metadata, "spec": make_revision_spec(model, variant, server)}


def make_revision_spec(model: Model, variant: Variant | None, server: ServerSettings) -> Object:
    """Return a RevisionSpec with one container, which runs the model."""
    resources = _resources(model, variant)
    spec = model.spec
    record = "" if spec.digest or spec.ray.service else names.digests(model)
    mounts = _mounts(spec.secret, claims_of(spec), record)
    if loads_adapters(spec):
        mounts.append(adapters(names.adapters(model)))
    if spec.workers is not None:
        mounts += [group_token(names.group_token(model)), shared_memory()]
    if own := own_service(spec.ray.service, model.namespace):
        server = replace(server, allow_hosts=",".join(filter(None, (server.allow_hosts, own))))
    return _revision_spec(spec, resources, _arguments(model, resources), mounts, server)


def make_member_spec(template: PoolTemplate, server: ServerSettings) -> Object:
    """Return the RevisionSpec of a warm pool's member: a server that waits for a load call.

    It is that of a Model with equal fields, except for the arguments.
    """
    resources = template.resources
    arguments = [
        "--pool",
        *_command_line(
            [
                ("--format", template.model_format),
                ("--timeout", int(template.timeout)),
                ("--cpu", format_cores(resources.cpu)),
            ]
        ),
        *_allow_code(template.model_format),
    ]
    return _revision_spec(template, resources, arguments, _mounts(template.secret), server)


def add_queue(metadata: Object, namespace: str, server: ServerSettings) -> None:
    """Add the queue of the scheduler of Pods with GPUs to the labels or annotations of a Pod's metadata."""
    for part, queue in queue_metadata(server.gpu_scheduler, server.gpu_queue.replace("{namespace}", namespace)).items():
        metadata[part] |= queue


def server_settings(runtime: str, model_format: str, settings: Settings) -> ServerSettings:
    """Return the server's settings with the image of the named runtime, or else of the format's runtime.

    An unknown runtime is reported by `runtime_fault`; no objects are made for it.
    """
    found = runtime_of(settings.runtimes, runtime, model_format)
    return settings.server if found is None else replace(settings.server, image=found.image)


def _revision_spec(
    spec: ServerSpec, resources: Resources, arguments: list[str], mounts: Sequence[Mount], server: ServerSettings
) -> Object:
    made: Object = {
        "containerConcurrency": spec.container_concurrency,
        "timeoutSeconds": int(spec.timeout),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [_container(arguments, resources, mounts, server)],
        "volumes": [mount.volume for mount in mounts],
    }
    if spec.service_account_name:
        made["serviceAccountName"] = spec.service_account_name
    if resources.has_gpus and resources.gpu_types:
        made["affinity"] = {"nodeAffinity": _gpu_affinity(resources)}
    if resources.has_gpus and server.gpu_priority_class:
        made["priorityClassName"] = server.gpu_priority_class
    if resources.gpu and server.gpu_scheduler:
        made["schedulerName"] = server.gpu_scheduler
    return made


def _gpu_affinity(resources: Resources) -> Object:
    """Return the affinity to nodes with the types of GPU, whichever labeller names them; a better type weighs more."""
    labels = type_labels(resources.gpu_resource or NVIDIA_GPU)

    def of(label: str, types: Sequence[str]) -> Object:
        return {"matchExpressions": [{"key": label, "operator": "In", "values": list(types)}]}

    types, most = resources.gpu_types, 100  # the largest weight
    preferred = [
        {"weight": max(1, most - number * (most // len(types))), "preference": of(label, [name])}
        for number, name in enumerate(types)
        for label in labels
    ]
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [of(one, types) for one in labels]},
        **({"preferredDuringSchedulingIgnoredDuringExecution": preferred} if len(types) > 1 else {}),
    }


def _mounts(secret: str, volume_claims: Sequence[str] = (), record: str = "") -> list[Mount]:
    """Return the volumes of a replica with their mounts."""
    found = [scratch()]
    if secret:
        found.append(credentials(secret))
    found += [claim(name, number) for number, name in enumerate(volume_claims, 1)]
    if record:
        found.append(digests(record))
    return found


def _resources(model: Model, variant: Variant | None) -> Resources:
    return variant.resources if variant else model.spec.resources


def _annotations(model: Model, resources: Resources) -> dict[str, str]:
    spec = model.spec
    found = {
        ANNOTATION_CLASS: CLASS,
        ANNOTATION_INITIAL_SCALE: INITIAL_SCALE,
        **FULL_DUPLEX,
        ANNOTATION_PROGRESS_DEADLINE: format_duration(spec.startup_deadline),
        ANNOTATION_STORAGE_URI: spec.storage_uri,
        ANNOTATION_DIGEST: spec.digest,
        ANNOTATION_VERSION: spec.version,
        ANNOTATION_VARIANTS: ",".join(sorted(variant.name for variant in spec.variants)),
        ANNOTATION_LOAD: _load_parameters(model, resources),
        ANNOTATION_TYPES: ",".join(resources.gpu_types) if resources.has_gpus else "",
        **make_fraction_annotation(resources),
        **_group_annotations(spec.workers),
    }
    return {name: value for name, value in found.items() if value}


def make_fraction_annotation(resources: Resources) -> dict[str, str]:
    """Return the annotation of a Pod with a part of a GPU, which the kubelet of one machine reads."""
    return {ANNOTATION_GPU_FRACTION: f"{resources.gpu_fraction:g}"} if resources.gpu_fraction else {}


def _group_annotations(workers: Workers | None) -> dict[str, str]:
    """Return what the controller of groups and the autoscaler's accounts must know of a replica's workers.

    The template has it, so that a leader always has the workers of its own Revision, whatever the Model is now.
    """
    if workers is None:
        return {}
    amounts = {name: float(parse_quantity(text)) * workers.count for name, text in workers.resources.amounts().items()}
    beside = json.dumps(amounts, sort_keys=True, separators=(",", ":"))
    return {ANNOTATION_WORKERS: to_json(workers), BESIDE_ANNOTATION: beside}


def _load_parameters(model: Model, resources: Resources) -> str:
    """Return the model's arguments as JSON parameters of the load call to a member of a warm pool."""
    spec = model.spec
    parameters: dict[str, Any] = {
        "name": model.name,
        "storageUri": spec.storage_uri,
        "digest": spec.digest,
        "modelFormat": spec.model_format,
        "slots": spec.container_concurrency,
        "timeout": int(spec.timeout),
        "cpu": float(format_cores(resources.cpu)),
    }
    if spec.batching is not None:
        parameters |= {"maxBatchSize": spec.batching.max_batch_size, "maxBatchLatency": spec.batching.max_latency}
    parameters["llm"] = _llm_parameters(_llm_of_template(spec))
    parameters["ray"] = {"application": spec.ray.application} if spec.ray.application else {}
    given = {name: value for name, value in parameters.items() if value}
    return json.dumps(given, sort_keys=True, separators=(",", ":"))


def make_adapter_entries(llm: Llm) -> list[Object]:
    """Return the adapters of a language model as in its manifest, without empty fields."""
    entries = [{"name": one.name, "uri": one.uri, "digest": one.digest} for one in llm.adapters]
    return [{name: value for name, value in one.items() if value} for one in entries]


def _llm_of_template(spec: ModelSpec) -> Llm:
    """Return the options of which each change makes a version: without adapters that are loaded later."""
    return replace(spec.llm, adapters=()) if loads_adapters(spec) else spec.llm


def _llm_parameters(llm: Llm) -> Object:
    """Return the options of a language model as in its manifest, without empty ones."""
    parameters: Object = {
        "contextLength": llm.context_length,
        "embeddings": llm.embeddings,
        "adapters": make_adapter_entries(llm),
        "toolParser": llm.tool_parser,
        "engineArgs": dict(llm.engine_args),
    }
    return {name: value for name, value in parameters.items() if value}


def _container(arguments: list[str], resources: Resources, mounts: Sequence[Mount], server: ServerSettings) -> Object:
    amounts = resources.amounts()
    container: Object = {
        "name": CONTAINER,
        "image": server.image,
        "args": arguments,
        "ports": [{"name": PORT_NAME, "containerPort": server.port}],
        "readinessProbe": {
            "httpGet": {"path": READY_PATH, "port": server.port},
            "periodSeconds": PROBE_PERIOD,
            "timeoutSeconds": PROBE_TIMEOUT,
            "failureThreshold": PROBE_FAILURES,
            "successThreshold": 1,
        },
        "livenessProbe": {
            "httpGet": {"path": LIVE_PATH, "port": server.port},
            "periodSeconds": LIVE_PERIOD,
            "timeoutSeconds": LIVE_TIMEOUT,
            "failureThreshold": PROBE_FAILURES,
        },
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": _security_context(),
        "volumeMounts": [mount.mount for mount in mounts],
    }
    environment = {mount.variable: mount.path for mount in mounts if mount.variable}
    if server.allow_hosts:
        environment[ALLOW_HOSTS] = server.allow_hosts
    if server.otlp_endpoint:
        environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.otlp_endpoint,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": f"{server.trace_percent / 100:g}",
            **{f"OTEL_{name.upper()}_EXPORTER": "none" for name in SIGNALS if name not in server.signals},
        }
    if environment:
        container["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    return container


def _arguments(model: Model, resources: Resources) -> list[str]:
    """Return the arguments of the model server.

    `--slots` is the hard limit. scaleTarget is not an argument, since its changes must not create revisions.
    """
    spec = model.spec
    options: list[tuple[str, Any]] = [
        ("--name", model.name),
        ("--storage-uri", spec.storage_uri.replace("$(", "$$(")),  # the kubelet expands $(NAME)
        ("--digest", spec.digest),
        ("--format", spec.model_format),
        ("--slots", spec.container_concurrency or ""),
        ("--timeout", int(spec.timeout)),
        ("--cpu", format_cores(resources.cpu)),
        ("--ray-application", spec.ray.application),
    ]
    if spec.batching is not None:
        options += [
            ("--max-batch-size", spec.batching.max_batch_size),
            ("--max-batch-latency", f"{spec.batching.max_latency:g}"),
        ]
    code = [] if spec.ray.service else _allow_code(spec.model_format)
    llm = _llm_arguments(_llm_of_template(spec))
    return [*_command_line(options), *_group_arguments(spec.workers), *llm, *code]


def _group_arguments(workers: Workers | None) -> list[str]:
    """Return what a leader must know of its workers."""
    if workers is None:
        return []
    cpu = format_cores(workers.resources.cpu)
    return _command_line([("--workers", workers.count), ("--worker-cpu", cpu), ("--on-loss", workers.on_loss)])


def _llm_arguments(llm: Llm) -> list[str]:
    """Return the options of a language model."""
    if llm == NO_LLM:
        return []
    options: list[tuple[str, Any]] = [("--context-length", llm.context_length or "")]
    for adapter in llm.adapters:
        digest = f"#{adapter.digest}" if adapter.digest else ""
        options.append(("--adapter", f"{adapter.name}={_literal(adapter.uri)}{digest}"))
    options.append(("--tool-parser", llm.tool_parser))
    options += [("--engine-arg", f"{name}={_literal(value)}") for name, value in llm.engine_args]
    return [*_command_line(options), *(["--embeddings"] if llm.embeddings else [])]


def _literal(text: str) -> str:
    """Return a text as the kubelet must get it, which expands $(NAME) and $$ in arguments."""
    return text.replace("$", "$$")


def _allow_code(model_format: str) -> list[str]:
    """Return the option that lets the artifact's code run.

    A Model or pool whose namespace does not allow code is blocked before this.
    """
    return ["--allow-code"] if runs_code(model_format) else []


def _command_line(options: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the options with a value as a command line."""
    return [word for option, value in options if value != "" for word in (option, str(value))]


def _security_context() -> Object:
    """Return the settings of Pod Security `restricted`, as far as Knative accepts them without a feature flag."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
