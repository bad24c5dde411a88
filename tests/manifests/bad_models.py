"""Models that both doors refuse, the Python one and the API server's, and Models that both take. Data.

What only one of them refuses stands apart, with the reason, so that a new difference is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clusters.base.objects import Object
from serving.types import faults, llm, scaling
from serving.types.annotations import ANNOTATION_CAUSE
from serving.types.model import MOST_CONCURRENCY, ModelSpec, RuntimeReference
from serving.types.rollout import Rollout
from serving.types.tables import Later
from tests.serving.models import VARIANTS, model_object, service_object

DIGEST = "sha256:" + "0f" * 32
ADAPTER: Object = {"name": "pirate", "uri": "hf://org/pirate-lora@v1", "digest": DIGEST}
SCHEDULE: Object = {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "duration": "10h", "minReplicas": 2}


@dataclass(frozen=True, slots=True)
class BadModel:
    """A Model with one fault, and the field that the Python door names; `words` begin what both doors say."""

    name: str
    object: Object
    path: str
    words: str = ""

    def __str__(self) -> str:
        return self.name


def _named(name: str) -> BadModel:
    return BadModel(f"the name {name[:20]!r}", model_object(name), "metadata.name")


def _field(name: str, value: Any, path: str = "", words: str = "") -> BadModel:
    return BadModel(f"{name} {str(value)[:40]!r}", model_object(**{name: value}), path or f"spec.{name}", words)


def _llm(fields: Any, path: str, words: str = "") -> BadModel:
    return _field("llm", fields, f"spec.llm.{path}", words)


def _workers(fields: Any, path: str, words: str = "") -> BadModel:
    return BadModel(
        f"workers {fields}", model_object(modelFormat="vllm", workers=fields), f"spec.workers.{path}", words
    )


def _traffic(entries: Any, path: str = "spec.traffic") -> BadModel:
    return _field("traffic", entries, path)


def _rollout(fields: Any, path: str, words: str = "") -> BadModel:
    return _field("rollout", fields, f"spec.rollout.{path}", words)


def _variants(entries: Any, path: str = "spec.variants") -> BadModel:
    return _field("variants", entries, path)


def _caused(text: str) -> BadModel:
    obj = model_object()
    obj["metadata"]["annotations"] = {ANNOTATION_CAUSE: text}
    return BadModel(f"the cause {text[:40]!r}", obj, f"metadata.annotations.{ANNOTATION_CAUSE}")


def _without(*names: str) -> BadModel:
    obj = {key: value for key, value in model_object().items() if key not in names}
    return BadModel(f"no {' '.join(names)}", obj, names[0])


def _later(name: str, later: Later) -> BadModel:
    return _field(name, {"a": 1}, words=later.fault())


def _schedule(path: str = "", **fields: Any) -> BadModel:
    """One schedule with other fields than a good one; None leaves a field out."""
    said = {name: value for name, value in (SCHEDULE | fields).items() if value is not None}
    name = next(iter(fields))
    return BadModel(
        f"a schedule of {name} {str(fields[name])[:40]!r}", model_object(schedules=[said], maxReplicas=4),
        path or f"spec.schedules[0].{name}",
    )  # fmt: skip


BAD_NAMES = ("Magika", "1magika", "a.b", "a_b", "a" * 54, "stable-x", "candidate-x", "../x")
BAD_URIS = (
    "", "/models/m", "models/m", "file://models/m", "file:models/m", "file:///a/../b", "file:///a?b", "http://",
    "http:///path", "https://user:pw@host/m", "https://host/m#x", "https://host:99999/m", "https://host:0/m",
    "https://host/a b", "ftp://host/m", "file:///a\nb", "http://[::1/m", "https://host/" + "a" * 3000, "file:///a\\b",
    "s3://", "s3:/box/m", "S3://box/m", "s3://box/m?x", "s3://-box/m", "s3://box/../m", "s3://Box/m", "s3://b/m",
    "gs://box/m#x", "gs://u@box/m", "hf://org", "oci://r/a//m",
    "hf://org/model?x", "hf://org/model:", "oci://host", "oci://r/M:1", "oci://r/m@sha256:0", "pvc:///m", "pvc://Claim/m",
    "hf://../../x", "hf://org/..", "hf://org/model@..", "hf://org/model@../..", "hf://org/..:main",
    "pvc://c/../m", "pvc://c/m?x", "file:///a\u00a0b", "https://u@h/m",
)  # fmt: skip
BAD_AMOUNTS: tuple[Any, ...] = ("0", "-1", "1Q", True, [], "1 ", "9" * 33, 0, -1)
BAD_NUMBERS: tuple[Any, ...] = (-1, 1.5, "1", True, [], {}, 10**30)

_NUMBERS = [
    *(_field(name, value) for name in ("minReplicas", "maxReplicas", "holdQueue", "containerConcurrency")
      for value in BAD_NUMBERS),
    *(_field(name, value) for name in ("scaleTarget", "targetUtilization") for value in (0, -1, "1", True, 1e9)),
    _field("maxReplicas", 0), _field("holdQueue", 0), _field("minReplicas", scaling.MOST_REPLICAS + 1),
    _field("holdQueue", scaling.MOST_HELD + 1), _field("targetUtilization", 1.01),
    _field("canaryTrafficPercent", 101), _field("canaryTrafficPercent", -1),
    BadModel("more at least than at most", model_object(minReplicas=3, maxReplicas=2), "spec.minReplicas",
             "must be at most maxReplicas"),
]  # fmt: skip

_DURATIONS = [
    _field("timeout", "0s"), _field("timeout", "1500ms", words="must be in whole seconds"), _field("timeout", 300),
    _field("timeout", "300"), _field("timeout", "601s"), _field("timeout", "1.0005s"), _field("timeout", "-5s"),
    _field("timeout", "1d"), _field("timeout", "9999999999h"), _field("startupDeadline", "0.5s"),
    _field("startupDeadline", "25h"), _field("scaleToZeroAfter", "999ms"), _field("scaleToZeroAfter", "200h"),
    _field("scaleToZeroAfter", "1s" * 40), _field("scaleToZeroAfter", "never"), _field("scaleToZeroAfter", -1),
    *(_field("latencyObjective", value) for value in ("0s", "0", "999us", "61m", 1, "auto")),
]  # fmt: skip

_TEXTS = [
    *(_field("storageUri", uri) for uri in BAD_URIS),
    _field("digest", "md5:1"), _field("digest", "sha256:" + "0F" * 32), _field("digest", DIGEST + "0"),
    _field("version", 7), _field("version", "a\nb"), _field("version", ""), _field("version", "x" * 254),
    _field("version", "a\u200bb"),
    _field("modelFormat", "onx"),
    _field("protocol", "h2c", words="not supported yet"), _field("visibility", "private"),
    _field("serviceAccountName", "A"), _field("serviceAccountName", ""), _field("serviceAccountName", "a..b"),
    *(_field("resources", {"cpu": value}, "spec.resources.cpu")
      for value in BAD_AMOUNTS),
    _field("resources", {"memory": "1gi"}, "spec.resources.memory"),
    _field("resources", [], "spec.resources"),
    *(_field("resources", {"gpu": value}, "spec.resources.gpu") for value in (-1, 65, "1", 0.5, True)),
    *(_field("resources", {"gpuResource": value}, "spec.resources.gpuResource") for value in ("", "gpu", "a.b/", 1)),
    *(_field("resources", {"gpuFraction": value}, "spec.resources.gpuFraction") for value in (0, 1, -0.5, "0.5", True)),
    _field("resources", {"gpuFraction": 0.5, "gpu": 1}, "spec.resources.gpuFraction", words="is instead of gpu"),
    _field("resources", {"gpuFraction": 0.5, "gpuResource": "amd.com/gpu"}, "spec.resources.gpuFraction",
           words="is a part of an NVIDIA GPU"),
]  # fmt: skip

_WORKERS = [
    _workers({}, "count"), _workers({"count": 2, "size": 1}, "size"),
    *(_workers({"count": value}, "count") for value in (0, -1, 65, "2", 1.5, True)),
    _workers({"count": 2, "resources": {"cpu": "0"}}, "resources.cpu"),
    _workers({"count": 2, "resources": {"gpu": 65}}, "resources.gpu"),
    _workers({"count": 2, "onLoss": "ignore"}, "onLoss", "must be restart or tolerate"),
    _workers({"count": 2, "gang": {}}, "gang.scheduler"),
    _workers({"count": 2, "gang": {"scheduler": "slurm"}}, "gang.scheduler", "must be volcano or kueue"),
    _workers({"count": 2, "gang": {"scheduler": "volcano", "queue": "A"}}, "gang.queue"),
    _workers({"count": 2, "gang": {"scheduler": "kueue"}}, "gang.queue", "is required with kueue"),
    _workers({"count": 2, "resources": {"gpu": 1, "gpuTypes": ["L4"]}}, "resources.gpuTypes", "is that of the leader"),
    _workers({"count": 2, "resources": {"gpuFraction": 0.5}}, "resources.gpuFraction", "is for replicas of one Pod"),
    BadModel("workers of an unknown format", model_object(workers={"count": 2}), "spec.workers", "is for models with"),
    BadModel("workers of onnx", model_object(modelFormat="onnx", workers={"count": 2}), "spec.workers", "is for"),
    BadModel(
        "workers of a service",
        {**model_object(), "spec": {"modelFormat": "ray", "ray": {"service": "http://h"}, "workers": {"count": 2}}},
        "spec.workers", "is not for a model at ray.service",
    ),
    _field("workers", 2),
]  # fmt: skip

_PARTS = [
    _field("storage", "keys"), _field("storage", []),
    _field("storage", {}, "spec.storage.secretRef"),
    _field("storage", {"secretRef": "keys"}, "spec.storage.secretRef"),
    _field("storage", {"secretRef": {}}, "spec.storage.secretRef.name"),
    _field("storage", {"secretRef": {"name": "Keys"}}, "spec.storage.secretRef.name"),
    _field("storage", {"secretRef": {"name": "keys", "key": "a"}}, "spec.storage.secretRef.key"),
    _field("runtime", {}, "spec.runtime.name"), _field("runtime", {"name": "A"}, "spec.runtime.name"),
    *(_field("runtime", {"name": "a", part: value}, f"spec.runtime.{part}", later.fault())
      for (part, later), value in
      zip(RuntimeReference.LATER.items(), ("i:1", ["--x"], [{"name": "A"}]), strict=True)),
    *(_field("batching", {"maxBatchSize": value}, "spec.batching.maxBatchSize") for value in (0, 1, 4097, "8", 2.5)),
    *(_field("batching", {"maxLatency": value}, "spec.batching.maxLatency") for value in (2, "2", "10us", "2s", "0")),
    _field("batching", {"size": 8}, "spec.batching.size"), _field("batching", True),
]  # fmt: skip

_BAD_ENGINE_ARGS: tuple[Any, ...] = (1, True, [], "a\nb", "x" * (llm.LONGEST_ENGINE_ARG + 1))
_LLMS = [
    _field("llm", "big"), _llm({"contexLength": 1}, "contexLength"),
    *(_llm({"contextLength": value}, "contextLength") for value in (-1, 1.5, "4096", True, llm.MOST_TOKENS + 1)),
    _llm({"embeddings": "yes"}, "embeddings"),
    _llm({"adapters": []}, "adapters"), _llm({"adapters": ["pirate"]}, "adapters[0]"),
    _llm({"adapters": [{"name": "pirate"}]}, "adapters[0].uri"),
    _llm({"adapters": [{"uri": "hf://org/lora"}]}, "adapters[0].name"),
    *(_llm({"adapters": [{**ADAPTER, **part}]}, f"adapters[0].{next(iter(part))}")
      for part in ({"name": "Pirate"}, {"name": "a=b"}, {"name": ""}, {"uri": "pirate"}, {"uri": "https://h/m#x"},
                   {"digest": "sha256:0"}, {"path": "/"})),
    _llm({"adapters": [ADAPTER, ADAPTER]}, "adapters"),
    _llm({"adapters": [{**ADAPTER, "name": f"a{n}"} for n in range(llm.MOST_ADAPTERS + 1)]}, "adapters"),
    *(_llm({"toolParser": value}, "toolParser") for value in ("", "a b", "-x", "x" * 64, 1)),
    _llm({"engineArgs": ["--seed"]}, "engineArgs"),
    *(_llm({"engineArgs": {name: "1"}}, "engineArgs", "must be named with at most 63")
      for name in ("", "--seed", "Seed", "a_b", "a=b", "x" * 64)),
    *(_llm({"engineArgs": {"seed": value}}, "engineArgs.seed") for value in _BAD_ENGINE_ARGS),
    _llm({"engineArgs": {f"a{n}": "" for n in range(llm.MOST_ENGINE_ARGS + 1)}}, "engineArgs"),
    BadModel("llm of another format", model_object(llm={}, modelFormat="onnx"), "spec.llm", "is for models of the"),
]  # fmt: skip

_RAYS = [
    *(BadModel(f"ray.application {path!r:.40}", model_object(ray={"application": path}, modelFormat="ray"),
               "spec.ray.application")
      for path in ("", "app", "app:", ":app", "app/x:app", "a-b:app", "app:app()", "app :app", "a" * 252 + ":b", 1)),
    BadModel("ray with another field", model_object(ray={"app": "app:app"}, modelFormat="ray"), "spec.ray.app"),
    BadModel("ray of another format", model_object(ray={}, modelFormat="python"), "spec.ray", "is for models of the"),
    BadModel("ray without a format", model_object(ray={}), "spec.ray", "is for models of the"),
    *(BadModel(f"ray.service {url!r:.40}", service_object(ray={"service": url}), "spec.ray.service")
      for url in ("", "ranker:8000", "ftp://ranker", "http://", "http://:8000", "http://u@ranker", "http://ranker:0",
                  "http://ranker:65536", "http://ranker?q=a", "http://ranker#f", "http://ranker/a b", "http://ranker//a",
                  "http://ranker/../a", "http://ranker/a/..", "http://ranker/$(HOME)", "http://ranker/a\\b",
                  "http://[::1]:8000", "http://ranker/" + "a" * 2048, 1)),
    *(BadModel(f"ray.service and {name}", service_object(**{name: value}), "spec.ray.service", "is the address of the")
      for name, value in (("storageUri", "file:///m"), ("digest", DIGEST))),
    BadModel("ray.service and application", service_object(ray={"service": "http://ranker", "application": "app:app"}),
             "spec.ray.service", "is the address of the"),
    BadModel("ray without service or files", service_object(ray={}), "spec.storageUri", "is required: a text such as"),
]  # fmt: skip

_TRAFFIC = [
    _traffic([]), _traffic({}), _traffic([1], "spec.traffic[0]"), _traffic([{"latest": True, "percent": 90}]),
    _traffic([{"latest": True, "percent": 101}], "spec.traffic[0].percent"),
    _traffic([{"latest": True}], "spec.traffic[0].percent"),
    _traffic([{"percent": 100}], "spec.traffic[0]"),
    _traffic([{"latest": False, "percent": 100}], "spec.traffic[0]"),
    _traffic([{"revision": "a-00001", "latest": True, "percent": 100}], "spec.traffic[0]"),
    _traffic([{"revision": "A", "percent": 100}], "spec.traffic[0].revision"),
    _traffic([{"latest": "yes", "percent": 100}], "spec.traffic[0].latest"),
    _traffic([{"latest": True, "percent": 100, "tag": "Blue"}], "spec.traffic[0].tag"),
    _traffic([{"latest": True, "percent": 100, "tag": "candidate"}], "spec.traffic[0].tag"),
    _traffic([{"latest": True, "percent": 100, "tag": "b" * 60}], "spec.traffic[0].tag"),
    _traffic([{"latest": True, "percent": 50, "tag": "b"}, {"revision": "a", "percent": 50, "tag": "b"}]),
    _traffic([{"latest": True, "percent": 1}] * 101),
]  # fmt: skip

_VARIANTS = [
    _variants([]), _variants([{"name": "a", "percent": 99}]),
    _variants([{"name": "a", "percent": 50}, {"name": "a", "percent": 50}]),
    _variants([{"percent": 100}], "spec.variants[0].name"),
    _variants([{"name": "a"}], "spec.variants[0].percent"),
    _variants([{"name": "a" * 50, "percent": 100}], "spec.variants[0].name"),
    _variants([{"name": "A", "percent": 100}], "spec.variants[0].name"),
    _variants([{"name": "a", "percent": 100, "resources": {"cpu": "x"}}], "spec.variants[0].resources.cpu"),
    _variants([{"name": "a", "percent": 100, "resources": {"gpu": -1}}], "spec.variants[0].resources.gpu"),
    _variants([{"name": f"v{index}", "percent": 5 if index < 20 else 0} for index in range(21)]),
]  # fmt: skip

_ROLLOUTS = [
    _rollout({"steps": {}}, "steps"),
    *(_rollout({"steps": steps}, "steps") for steps in ([], [10, 50], [50, 10, 100], [10, 10, 100], [5] * 21)),
    *(_rollout({"steps": [value, 100]}, "steps[0]") for value in (0, 101, "10", True, None)),
    *(_rollout({name: value}, name) for name in ("stepDuration", "progressDeadline") for value in ("0s", 60, "169h")),
    _rollout({"keepWarm": "-1s"}, "keepWarm"), _rollout({"maxSurge": -1}, "maxSurge"),
    _rollout({"maxSurge": 1001}, "maxSurge"),
    _rollout({"onInsufficientTraffic": "wait"}, "onInsufficientTraffic", "must be hold or promote or rollback"),
    *(_rollout({"judge": {name: value}}, f"judge.{name}")
      for name, value in (("interval", "999ms"), ("maxErrorRate", 1.1), ("maxErrorRate", -0.1),
                          ("maxLatencyRatio", 0.9), ("quantile", 0.4), ("quantile", 1), ("metrics", []), ("rate", 1),
                          ("maxStableErrorRate", 1.1), ("count4xx", "yes"))),
    *(_rollout({"judge": {"metrics": [{"name": "a", "query": "up", "max": 1, **part}]}},
               f"judge.metrics[0].{next(iter(part))}")
      for part in ({"name": "A"}, {"query": ""}, {"query": "a\nb"}, {"max": "1"}, {"min": 0}, {"max": None})),
    _rollout({"judge": {"metrics": [{"name": "a", "query": "up", "max": 1}] * 2}}, "judge.metrics"),
    *(_rollout({name: {}}, name, later.fault()) for name, later in Rollout.LATER.items()),
    _rollout({"step": []}, "step"), _field("rollout", "fast"),
]  # fmt: skip

_CAUSES = [
    _caused(text)
    for text in ("x", "[]", "{}", '{"by":"nobody"}', '{"by":"user","who":"me"}', '{"by":"user","id":1}', '{"by":"user"',
                 '{"id":"{\\"by\\":\\"user\\"}"}')
]  # fmt: skip

_SCHEDULES = [
    *(_schedule(cron=cron)
      for cron in (None, "", "8 * * *", "0 8 * * * *", "60 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 32 * *",
                   "0 8 * 13 *", "0 8 * * 8", "*/0 * * * *", "@daily", "1" * 101, 5)),
    *(_schedule(timeZone=zone) for zone in ("", "Europe Berlin", "../etc", "+02:00", 2)),
    *(_schedule(duration=value) for value in (None, "0s", "0", "-1h", "169h", "10", 36000)),
    *(_schedule(minReplicas=value) for value in (None, 0, -1, 1.5, "2", 1001)),
    _schedule("spec.schedules[0].maxReplicas", maxReplicas=4), _schedule("spec.schedules[0].timezone", timezone="UTC"),
    BadModel("more by the clock than at most", model_object(maxReplicas=1, schedules=[SCHEDULE]),
             "spec.schedules[0].minReplicas"),
    _field("schedules", []), _field("schedules", {}), _field("schedules", ["0 8 * * *"], "spec.schedules[0]"),
    _field("schedules", [SCHEDULE] * 17),
]  # fmt: skip

BAD_MODELS = (
    *map(_named, BAD_NAMES),
    *_NUMBERS,
    *_DURATIONS,
    *_TEXTS,
    *_PARTS,
    *_LLMS,
    *_WORKERS,
    *_RAYS,
    *_TRAFFIC,
    *_VARIANTS,
    *_ROLLOUTS,
    *_CAUSES,
    *_SCHEDULES,
    *(_later(name, later) for name, later in ModelSpec.LATER.items()),
    _without("spec"),
    BadModel("no storageUri", {**model_object(), "spec": {}}, "spec.storageUri", "is required: a text such as"),
    _field("minReplica", 1),
    _variants([{"name": "a", "percent": 100, "image": "x"}], "spec.variants[0].image"),
    _traffic([{"latest": True, "percent": 100, "weight": 1}], "spec.traffic[0].weight"),
    BadModel("an unknown field", {**model_object(), "specs": {}}, "specs"),
)
"""Refused by both doors."""

FULL_ROLLOUT: Object = {
    "steps": [1, 10, 100], "stepDuration": "90s", "progressDeadline": "1h", "maxSurge": 2, "keepWarm": "0s",
    "onInsufficientTraffic": "promote",
    "judge": {"interval": "5s", "maxErrorRate": 0, "maxLatencyRatio": 2, "quantile": 0.99,
              "maxStableErrorRate": 0.5, "count4xx": True,
              "metrics": [{"name": "drift", "query": "max(drift{model='magika'})", "max": -0.5}]},
}  # fmt: skip

LONGEST = model_object(
    storageUri="https://models.example.org:8443/m.onnx?sig=a%2Fb", digest=DIGEST, version="7 (retrained)",
    modelFormat="onnx", storage={"secretRef": {"name": "hub.keys"}}, runtime={"name": "onnx-gpu"},
    batching={"maxBatchSize": 8, "maxLatency": "500us"},
    resources={"cpu": 2, "memory": "512Mi"}, variants=VARIANTS, protocol="http1",
    containerConcurrency=8, timeout="1m30s", startupDeadline="20m", serviceAccountName="models", minReplicas=1,
    maxReplicas=10, scaleTarget=2.5, targetUtilization=1, scaleToZeroAfter="1h", holdQueue=5,
    latencyObjective="250ms",
    schedules=[SCHEDULE, {**SCHEDULE, "cron": "*/30 22-23,0 L 1,JUL FRI#2", "duration": "5m"}],
    visibility="cluster-local", canaryTrafficPercent=0, rollout=FULL_ROLLOUT,
    traffic=[{"revision": "magika-a100-00001", "percent": 100, "tag": "blue"}, {"latest": True, "tag": "green"}],
)  # fmt: skip
"""Every field."""

NOTHING: dict[str, Any] = dict.fromkeys(
    ("digest", "version", "modelFormat", "storage", "runtime", "batching", "llm", "ray", "workers",
     "resources", "variants", "protocol", "containerConcurrency", "timeout",
     "startupDeadline", "serviceAccountName", "minReplicas", "maxReplicas", "scaleTarget", "targetUtilization",
     "scaleToZeroAfter", "holdQueue", "latencyObjective", "priority", "weight", "schedules", "visibility", "traffic",
     "canaryTrafficPercent", "rollout",
     *ModelSpec.LATER)
)  # fmt: skip
"""Every field that may be absent, as null."""


def _cause(text: str) -> Object:
    obj = model_object()
    obj["metadata"]["annotations"] = {ANNOTATION_CAUSE: text}
    return obj


GOOD_STORES = (
    "s3://box", "s3://models.example/magika/7/", "gs://box/größe/m.onnx", "hf://org/model", "hf://org/model:main/onnx",
    "hf://org/model@v1.0", "oci://ghcr.io/org/model", "oci://localhost:5000/m:1", "oci://[::1]:5000/m:1",
    f"oci://h/a/b_c@{DIGEST}", "pvc://models", "pvc://models.v2/magika/7",
)  # fmt: skip
GOOD_MODELS: dict[str, Object] = {
    "the shortest": model_object(),
    "the longest": LONGEST,
    "all null": model_object(**NOTHING),
    **{f"the name {name}": model_object(name) for name in ("a", "a" * 53, "stable", "stablex", "m-1")},
    **{
        f"the URI {uri}": model_object(storageUri=uri)
        for uri in ("file:///m", "file://localhost/m", "http://h/m", "https://[::1]:8/m", "HTTP://h/m", "http://h:65535",
                    "file:///a..b/..c", "https://h?q=a", "file:///größe/模型", *GOOD_STORES)
    },
    **{f"the timeout {text}": model_object(timeout=text) for text in ("1s", "600s", "10m", "2000ms", "1.5m", "1m1s")},
    **{f"idle {text}": model_object(scaleToZeroAfter=text) for text in ("1500ms", "1.5s", "168h", "1000000us", "auto")},
    **{f"an objective of {text}": model_object(latencyObjective=text) for text in ("1ms", "1000us", "1h", "0.5s")},
    **{f"the cron line {cron}": model_object(schedules=[SCHEDULE | {"cron": cron}])
       for cron in ("* * * * *", "0 0 LW * *", "*/15 9-17 * * mon,WED", "0 0 29 2 *", "00 08 * * 7",
                    "5,10-20/5 * * * 5L")},
    **{f"the service {url}": service_object(ray={"service": url})
       for url in ("http://ranker-serve-svc:8000", "https://ray.example.org/rank/", "http://ranker.ml.svc.cluster.local/a/b",
                   "http://127.0.0.1:8000/a-b_c.d~e!f", "http://ranker/a..b", "http://r:65535/%C3%A4")},
    "a schedule of UTC": model_object(schedules=[SCHEDULE | {"timeZone": None, "duration": "1s"}]),
    "more by the clock than the default maximum": model_object(schedules=[SCHEDULE | {"minReplicas": 9}]),
    "sixteen schedules": model_object(schedules=[SCHEDULE | {"duration": "168h"}] * 16),
    **{f"{cpu} cores": model_object(resources={"cpu": cpu}) for cpu in (1, "1", "500m", "0.5", ".5", "1e3", "+1")},
    "GPUs": model_object(resources={"gpu": 8, "gpuResource": "amd.com/gpu"}),
    "a part of a GPU": model_object(resources={"gpuFraction": 0.25, "gpu": 0, "gpuTypes": ["NVIDIA-L4"]}),
    "a worker": model_object(modelFormat="vllm", workers={"count": 1}),
    "workers of a gang": model_object(
        modelFormat="vllm",
        workers={"count": 64, "resources": {"cpu": 8, "gpu": 0}, "onLoss": "tolerate",
                 "gang": {"scheduler": "kueue", "queue": "research.gpus"}},
    ),
    "1.5Gi": model_object(resources={"memory": "1.5Gi"}),
    "a minimum above the default maximum": model_object(minReplicas=9),
    "the largest numbers": model_object(
        minReplicas=scaling.MOST_REPLICAS, maxReplicas=scaling.MOST_REPLICAS, holdQueue=scaling.MOST_HELD,
        containerConcurrency=MOST_CONCURRENCY, scaleTarget=MOST_CONCURRENCY,
        targetUtilization=scaling.LEAST_TARGET, canaryTrafficPercent=100,
    ),
    "a hundred parts": model_object(traffic=[{"revision": f"magika-{n:05}", "percent": 1} for n in range(1, 101)]),
    "twenty variants": model_object(variants=[{"name": f"v{n}", "percent": 5} for n in range(20)]),
    **{f"the format {name}": model_object(modelFormat=name) for name in faults.FORMATS},
    "batches as usual": model_object(batching={}),
    "a language model": model_object(
        llm={"contextLength": 4096, "embeddings": True, "adapters": [ADAPTER, {"name": "b", "uri": "s3://box/b/"}],
             "toolParser": "llama3_json",
             "engineArgs": {"seed": "7", "speculative-config": '{"model": "größe"}', "x": ""}}
    ),
    "a language model as usual": model_object(llm={}),
    "a language model of nulls": model_object(
        llm=dict.fromkeys(("contextLength", "embeddings", "adapters", "toolParser", "engineArgs"))
    ),
    "a rollout as usual": model_object(rollout={}),
    "a rollout of nulls": model_object(rollout=dict.fromkeys(FULL_ROLLOUT)),
    "a rollout at once": model_object(rollout={"steps": [100], "maxSurge": 0, "judge": {}}),
    "a cause": _cause('{"by": "event", "id": "42", "source": "/train/\\"magika\\""}'),
    "an empty cause": _cause(""),
}  # fmt: skip
"""Taken by both doors."""

ONLY_PYTHON_REFUSES: dict[str, Object] = {
    "2.0 requests: the API server reads it as 2": model_object(holdQueue=2.0),
    "a cron line of a day that never comes: known by the calendar": model_object(
        schedules=[SCHEDULE | {"cron": "0 0 30 2 *"}]
    ),
    "a time zone that is none: a definition has no list of them": model_object(
        schedules=[SCHEDULE | {"timeZone": "Mars/Olympus"}]
    ),
    "a quantity that is too large: Kubernetes keeps the largest": model_object(resources={"cpu": "9E99"}),
}
ONLY_KUBERNETES_REFUSES: dict[str, Object] = {
    "a bare 0 of a duration that may be 0": model_object(rollout={"keepWarm": "0"}),
    "a quantity that is a fraction without quotes: a definition knows whole numbers and texts": model_object(
        resources={"cpu": 0.5}
    ),
}
