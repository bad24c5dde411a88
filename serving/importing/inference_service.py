"""InferenceServices of KServe (`serving.kserve.io/v1beta1`). Pure.

Source of the fields: `pkg/apis/serving/v1beta1` of github.com/kserve/kserve.
"""

from __future__ import annotations

from typing import Final

from serving.importing.containers import drop_option, options, take_environment, take_resources, take_server
from serving.importing.conversion import ANY, Conversion, FieldPath, ForeignObject, NotConverted, Rule
from serving.importing.formats import FORMAT_OF, UNSERVED, code_to_do, normalized_uri, served_format
from serving.importing.scaling import METADATA_RULES, take_autoscaling, take_metadata

PREDICTOR: Final = ("spec", "predictor")
MODEL_PATH: Final = (*PREDICTOR, "model")
FRAMEWORKS: Final = tuple(name for name in (*FORMAT_OF, *UNSERVED) if name not in ("vllm", "torchserve"))
"""Fields of a predictor of earlier KServe releases: `predictor.sklearn` is `predictor.model` of this format."""
MIN_REPLICAS: Final = 1
"""KServe's default; ours is 0."""
BATCH_SIZE: Final = 32
"""KServe's default."""
DEFAULT_KEY: Final = "default"
"""Of KServe's Secret `storage-config`."""
_BUILT_IN_RUNTIMES: Final = "kserve-"
_THREADS: Final = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
_ALWAYS_SERVERLESS: Final = "a Model is always a Knative workload"
_ONE_PORT: Final = "the server has one port with the protocols v1 and v2"
_PLACEMENT: Final = "a Model has no fields for the placement of its Pods"
_CONTAINER: Final = "the container is the platform's"
_NONE: Final = "a Model has no such field"
_NAME: Final = "requests name the Model"
_NO_INTERRUPTION: Final = "Knative replaces Pods without an interruption; spec.rollout adds judged steps"
_IMAGE: Final = ("the image is the platform's", "define a runtime in the settings, and set spec.runtime.name")
_SECRET: Final = (
    "a Model names the Secret of its store",
    "create one with `knodel secret NAME --env KEY`, and set spec.storage.secretRef.name",
)
_LOGGER: Final = "of a Model, payloads are not logged"
_ON_CPU: Final = "the model runs on the CPU"
_GENERAL_INSTEAD: Final = "decide whether the Model works without it"

RULES: Final = (
    *METADATA_RULES,
    Rule(("metadata", "annotations", "serving.kserve.io/deploymentMode"), _ALWAYS_SERVERLESS),
    Rule(("metadata", "annotations", "serving.kserve.io/enable-prometheus-scraping"), "metrics are always served"),
    Rule(("metadata", "annotations", "serving.kserve.io/enable-metric-aggregation"), "metrics are always served"),
    Rule(("metadata", "annotations", "sidecar.istio.io/*"), "Knodel runs without Istio"),
    Rule((*PREDICTOR, "annotations", "*sidecar.istio.io/*"), "Knodel runs without Istio"),
    Rule((*PREDICTOR, "annotations", "traffic.sidecar.istio.io/*"), "Knodel runs without Istio"),
    Rule(("metadata", "annotations", "serving.kserve.io/secretKey"), *_SECRET),
    Rule(("metadata", "annotations", "serving.kserve.io/gke-accelerator"), "Models have no GPUs yet", _ON_CPU),
    Rule(("metadata", "annotations", "serving.kserve.io/autoscalerClass"), "Models have one autoscaler",
         "set spec.scaleTarget: concurrent requests of a replica"),
    Rule(("metadata", "annotations", "serving.kserve.io/metric"), "replicas follow concurrent requests only",
         "set spec.scaleTarget: concurrent requests of a replica"),
    Rule(("metadata", "annotations", "serving.kserve.io/targetUtilizationPercentage"),
         "replicas follow concurrent requests only", "set spec.scaleTarget: concurrent requests of a replica"),
    Rule(("metadata", "annotations", "autoscaling.knative.dev/*"), "Models have one autoscaler",
         "set spec.scaleTarget: concurrent requests of a replica"),
    Rule(("metadata", "annotations", ANY), "it may have a meaning for another controller",
         "add it to the Model if it is a note"),
    Rule((*PREDICTOR, "deploymentStrategy"), _NO_INTERRUPTION),
    Rule((*PREDICTOR, "logger"), _LOGGER,
         "log them where requests come in, or run the model server itself with --payload-log"),
    Rule((*PREDICTOR, "autoScaling"), "replicas follow concurrent requests only",
         "set spec.scaleTarget: concurrent requests of a replica"),
    Rule((*PREDICTOR, "workerSpec"), "a replica is one Pod", "keep it on KServe"),
    Rule((*PREDICTOR, "containers"), "a Model has no further containers", "decide whether the Model works without it"),
    Rule((*PREDICTOR, "initContainers"), "a Model has no further containers",
         "decide whether the Model works without it"),
    *(
        Rule((*PREDICTOR, name), _PLACEMENT, "label the nodes of the cluster, or set the defaults of the namespace")
        for name in ("nodeSelector", "tolerations", "affinity", "nodeName", "topologySpreadConstraints",
                     "priorityClassName", "schedulerName", "runtimeClassName")
    ),
    Rule((*MODEL_PATH, "resources", ANY, "nvidia.com/*"), "Models have no GPUs yet", _ON_CPU),
    Rule((*MODEL_PATH, "resources", ANY, "amd.com/*"), "Models have no GPUs yet", _ON_CPU),
    Rule((*MODEL_PATH, "storage", "key"), *_SECRET),
    Rule((*MODEL_PATH, "storage"), "the address is storageUri", "check spec.storageUri"),
    Rule((*MODEL_PATH, "args"), "options of KServe's server", "see the fields of a Model (docs/reference.md)"),
    Rule((*MODEL_PATH, "env"), "a Model has no environment variables", "see the fields of a Model (docs/reference.md)"),
    Rule((*MODEL_PATH, "image"), *_IMAGE),
    Rule((*MODEL_PATH, "command"), *_IMAGE),
    Rule((*MODEL_PATH, "runtime"), "a runtime is a name in the platform's settings",
         "define it in the settings, and set spec.runtime.name"),
    Rule((*MODEL_PATH, "modelFormat", "version"), "the engine reads the version from the file"),
    Rule((*MODEL_PATH, "runtimeVersion"), "a version of KServe's server image"),
    *(
        Rule((*MODEL_PATH, name), _CONTAINER)
        for name in ("name", "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe", "workingDir",
                     "terminationMessagePath", "terminationMessagePolicy", "stdin", "stdinOnce", "tty")
    ),
    Rule(("spec", "transformer"), "the Model serves the predictor alone: requests are its tensors",
         "call the transformer's code before the request; or write preprocess and postprocess in a class Model"),
    Rule(("spec", "explainer"), "a Model has no explainer", "run the explainer beside it, with the Model's address"),
)  # fmt: skip
"""Fields without a Model's field. The path `model` stands for those of earlier releases (`sklearn`, …) as well."""
OTHERWISE: Final = Rule((), _NONE, _GENERAL_INSTEAD)


def convert_inference_service(made: ForeignObject) -> Conversion:
    """Return the Model of an InferenceService, and what it lacks."""
    rules: tuple[Rule, ...] = RULES
    try:
        if made.get("spec", "default") is not None:
            raise NotConverted(
                "spec.default is of v1alpha2, which KServe no longer serves", "write it as v1beta1: spec.predictor",
                ("spec", "default"),
            )  # fmt: skip
        take_metadata(made)
        at = _model_of(made)
        rules = tuple(rule._replace(pattern=_at(rule.pattern, at)) for rule in RULES)
        if at[-1] == 0:
            take_server(made, at)
        else:
            _take_model(made, at)
        _take_container(made, at)
        _take_component(made)
        return made.finish(rules, OTHERWISE)
    except NotConverted as error:
        return made.refuse(error)


def _at(pattern: FieldPath, at: FieldPath) -> FieldPath:
    """Return a rule's pattern for the place of the model."""
    return (*at, *pattern[len(MODEL_PATH) :]) if pattern[: len(MODEL_PATH)] == MODEL_PATH else pattern


def _model_of(made: ForeignObject) -> FieldPath:
    """Return the path of the model: `predictor.model`, that of a framework, or the only container."""
    predictor = made.get(*PREDICTOR)
    if not isinstance(predictor, dict):
        raise NotConverted("spec.predictor is missing", "write spec.predictor.model", ("spec",))
    found = [name for name in ("model", *FRAMEWORKS) if isinstance(predictor.get(name), dict)]
    if len(found) > 1:
        raise NotConverted(f"it has several models: {', '.join(found)}", "keep one of them", PREDICTOR)
    if found:
        return (*PREDICTOR, found[0])
    containers = predictor.get("containers")
    if isinstance(containers, list) and len(containers) == 1:
        return (*PREDICTOR, "containers", 0)
    if containers:
        raise NotConverted(
            "several containers are not a model",
            "keep it on KServe, or deploy the model alone",
            (*PREDICTOR, "containers"),
        )
    raise NotConverted("it has no model", "write spec.predictor.model", PREDICTOR)


def _take_model(made: ForeignObject, at: FieldPath) -> None:
    """Carry format and location of the model."""
    name = str(at[-1])
    where: FieldPath = at
    if name == "model":
        where = (*at, "modelFormat", "name")
        name = made.text(where, "spec.modelFormat").lower()
    if not name:
        raise NotConverted("modelFormat.name is missing", "write it", where)
    uri = _take_uri(made, at)
    chosen = served_format(name, uri, where)
    if chosen:
        made.put("modelFormat", chosen)
    elif name == "triton":
        path = f"/v2/models/{made.metadata['name']}"
        made.to_do.append(f"requests name the Model, not the model in the repository: send them to {path}")
    made.to_do += code_to_do(chosen, str(made.get("metadata", "namespace") or ""))
    runtime = made.get(*at, "runtime")
    if isinstance(runtime, str) and runtime.startswith(_BUILT_IN_RUNTIMES):
        made.drop((*at, "runtime"), "the format selects the engine")
    protocol = made.get(*at, "protocolVersion")
    if isinstance(protocol, str) and not protocol.startswith("grpc"):
        made.drop((*at, "protocolVersion"), _ONE_PORT)
    made.leave(
        (*at, "protocolVersion"), "a Model has no gRPC port", "send the same requests over HTTP: /v2/models/NAME/infer"
    )


def _take_uri(made: ForeignObject, at: FieldPath) -> str:
    """Set storageUri from `storageUri`, or from `storage` with a known store. Raises NotConverted without either."""
    uri = made.text((*at, "storageUri"), "spec.storageUri") or _stored_uri(made, (*at, "storage"))
    if not uri:
        raise NotConverted("the model has no storageUri: its server gets models by TrainedModels, or from its image",
                           "write a Model with the storageUri of each", at)  # fmt: skip
    made.put("storageUri", normalized_uri(uri))
    return uri


def _stored_uri(made: ForeignObject, at: FieldPath) -> str:
    """Return the URI of a path in a store: of a given one, else of that in the parameters; "" without `storage`.

    Raises NotConverted when the store is unknown.
    """
    path, bucket = made.get(*at, "path"), made.get(*at, "parameters", "bucket")
    key, kind = made.get(*at, "key") or DEFAULT_KEY, made.get(*at, "parameters", "type") or "s3"
    store = made.stores.get(str(key))
    if isinstance(path, str) and store is not None:
        made.take((*at, "key"), "spec.storageUri")
    elif isinstance(path, str) and isinstance(bucket, str) and kind in ("s3", "gs"):
        store = f"{kind}://{bucket}"
        for name in ("bucket", "type"):
            made.take((*at, "parameters", name), "spec.storageUri")
    elif made.get(*at) is not None:
        raise NotConverted(
            "the store is in a Secret of the cluster", f"name it with --storage {key}=URI, such as s3://BUCKET", at
        )
    else:
        return ""
    made.take((*at, "path"), "spec.storageUri")
    return f"{store.rstrip('/')}/{path.lstrip('/')}"


def _take_container(made: ForeignObject, at: FieldPath) -> None:
    """Carry resources; decide about ports and variables of the model's container."""
    take_resources(made, (*at, "resources"))
    for name, path in list(take_environment(made, at)):
        if name in _THREADS:
            made.drop(path, "the threads follow spec.resources.cpu")
    name = made.metadata["name"]
    for option in options(made, at):
        if option.flag == "--model_name" and option.value == name:
            drop_option(made, option, _NAME)
        elif option.flag == "--model_name":
            made.leave(option.place, _NAME, f"send them to /v1/models/{name} and /v2/models/{name}")
            made.drop(option.flag_place or option.place, _NAME)
    ports = made.get(*at, "ports")
    for index, port in enumerate(ports if isinstance(ports, list) else ()):
        if isinstance(port, dict) and port.get("name") == "h2c":
            made.leave((*at, "ports", index), "a Model has no gRPC port",
                       "send the same requests over HTTP: /v2/models/NAME/infer")  # fmt: skip
        else:
            made.drop((*at, "ports", index), _ONE_PORT)


def _take_component(made: ForeignObject) -> None:
    """Carry what a predictor has beside its model: scaling, traffic, batching, account."""
    for name in ("canaryTrafficPercent", "containerConcurrency"):
        made.carry((*PREDICTOR, name), name)
    _take_scaling(made)
    timeout = made.get(*PREDICTOR, "timeout")
    if isinstance(timeout, int) and not isinstance(timeout, bool):
        made.carry((*PREDICTOR, "timeout"), "timeout", f"{timeout}s")
    for name in ("serviceAccountName", "serviceAccount"):
        made.carry((*PREDICTOR, name), "serviceAccountName")
    if "serviceAccountName" in made.spec and str(made.spec["storageUri"]).startswith(("s3:", "gs:")):
        made.to_do.append(
            "a Model takes the store's credentials from a Secret: create one with `knodel secret NAME --env KEY`, and "
            "set spec.storage.secretRef.name; public buckets need none"
        )
    _take_batcher(made)


def _take_scaling(made: ForeignObject) -> None:
    for name in ("minReplicas", "maxReplicas"):
        if name == "maxReplicas" and made.get(*PREDICTOR, name) == 0:
            made.leave((*PREDICTOR, name), "a Model has a limit of replicas", "set spec.maxReplicas")
        made.carry((*PREDICTOR, name), name)
    metric = made.get(*PREDICTOR, "scaleMetric")
    if metric in (None, "concurrency"):
        made.carry((*PREDICTOR, "scaleTarget"), "scaleTarget")
        made.drop((*PREDICTOR, "scaleMetric"), "concurrency is the only metric of the scale target")
    else:
        for name in ("scaleTarget", "scaleMetric", "scaleMetricType"):
            made.leave((*PREDICTOR, name), "replicas follow concurrent requests only",
                       "set spec.scaleTarget: concurrent requests of a replica")  # fmt: skip
    for at in (("metadata", "annotations"), (*PREDICTOR, "annotations")):
        take_autoscaling(made, at)
    made.spec.setdefault("minReplicas", MIN_REPLICAS)


def _take_batcher(made: ForeignObject) -> None:
    at = (*PREDICTOR, "batcher")
    if made.get(*at) == {}:
        made.carry(at, "batching", {"maxBatchSize": BATCH_SIZE})
    size, wait = made.get(*at, "maxBatchSize"), made.get(*at, "maxLatency")
    if size == 1:
        made.drop(at, "batches of one request are none")
        return
    made.carry((*at, "maxBatchSize"), "batching.maxBatchSize")
    if isinstance(wait, int) and not isinstance(wait, bool):
        made.carry((*at, "maxLatency"), "batching.maxLatency", f"{wait}ms")
    made.leave((*at, "timeout"), "a batch has no timeout of its own", "set spec.timeout, which includes the wait")
