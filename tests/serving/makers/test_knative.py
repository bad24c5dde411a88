"""Makers of Knative objects: which changes create a revision; owners, labels, and the hash of what was applied."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import autoscaler.warmpool.claims.assignment as claims
from autoscaler.gpu.shapes import ANNOTATION_PRIORITY, ANNOTATION_TYPES, ANNOTATION_WEIGHT
from autoscaler.types import Policy
from clusters.base.objects import ANNOTATION_GPU_FRACTION, SERVICE, Object, controller_of, labels_of
from clusters.base.pod_queues import KAI_QUEUE, VOLCANO_QUEUE
from clusters.embedded.kubelet.process.images import expand
from serving.makers.knative import (
    make_configurations,
    make_gpu_annotations,
    make_policy,
    make_route,
    make_service,
    make_templates,
)
from serving.makers.knative_flags import AFFINITY, SCHEDULER_NAME, VOLUME_CLAIMS, flags_needed
from serving.makers.targets import first_traffic
from serving.modelserver.base.assignment import BatchBounds, ModelBounds, parse_assignment
from serving.modelserver.base.llm import AdapterSource, LlmParameters
from serving.modelserver.base.options import parse_options
from serving.storage.sources.local import VOLUMES
from serving.storage.transfer.credentials import FOLDER
from serving.types.annotations import ANNOTATION_APPLIED, LABEL_GENERATION
from serving.types.faults import CODE_FORMATS, FORMATS
from serving.types.settings.runtimes import Runtime
from serving.types.settings.settings import ServerSettings, Settings
from serving.types.validation import read_model
from tests.serving.models import VARIANTS, model, model_object, service_object
from tests.support.knative_webhook.validation import KNATIVE_FEATURES, validators

SETTINGS = Settings()
DIGEST = "sha256:" + "0f" * 32


def templates(**spec: Any) -> dict[str, Object]:
    return make_templates(model(**spec), SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        {"minReplicas": 3},
        {"maxReplicas": 9},
        {"scaleTarget": 8},
        {"targetUtilization": 0.5},
        {"scaleToZeroAfter": "5m"},
        {"holdQueue": 5},
        {"priority": 5},
        {"weight": 3},
        {"resources": {"gpuTypes": ["NVIDIA-L4"]}},
        {"visibility": "cluster-local"},
        {"traffic": [{"latest": True, "percent": 100, "tag": "blue"}]},
        {"canaryTrafficPercent": 10},
        {"timeout": "5m"},
        {"startupDeadline": "10m"},
        {"resources": {"cpu": "1000m", "memory": "1024Mi"}},
        {"containerConcurrency": 0},
        {"protocol": "http1"},
        {"llm": {}},
    ],
    ids=str,
)
def test_scaling_traffic_and_other_spellings_make_no_revision(change: dict[str, Any]) -> None:
    assert templates(**change) == templates()


@pytest.mark.parametrize(
    "change",
    [
        {"storageUri": "file:///models/other"},
        {"resources": {"gpu": 1}},
        {"resources": {"gpu": 1, "gpuTypes": ["NVIDIA-L4"]}},
        {"resources": {"gpuFraction": 0.5}},
        {"digest": DIGEST},
        {"version": "8"},
        {"modelFormat": "onnx"},
        {"modelFormat": "python"},
        {"storage": {"secretRef": {"name": "keys"}}},
        {"batching": {"maxBatchSize": 8}},
        {"llm": {"contextLength": 4096}},
        {"llm": {"embeddings": True}},
        {"llm": {"toolParser": "hermes"}},
        {"llm": {"engineArgs": {"seed": "7"}}},
        {"llm": {"adapters": [{"name": "pirate", "uri": "s3://box/a"}]}},
        {"resources": {"cpu": "2"}},
        {"resources": {"memory": "2Gi"}},
        {"containerConcurrency": 1},
        {"timeout": "299s"},
        {"startupDeadline": "599s"},
        {"serviceAccountName": "models"},
    ],
    ids=str,
)
def test_all_that_runs_makes_a_revision_with_another_label(change: dict[str, Any]) -> None:
    former, present = templates()["magika"], templates(**change)["magika"]
    assert former != present
    assert former["metadata"]["labels"][LABEL_GENERATION] != present["metadata"]["labels"][LABEL_GENERATION]


def test_another_server_image_makes_a_revision() -> None:
    settings = Settings(server=ServerSettings(image="knodel.dev/server:next"))
    assert make_templates(model(), settings) != make_templates(model(), SETTINGS)


def test_a_part_of_a_gpu_is_an_annotation_and_no_limit() -> None:
    [template] = templates(resources={"gpuFraction": 0.3}).values()
    assert template["metadata"]["annotations"][ANNOTATION_GPU_FRACTION] == "0.3"
    assert set(template["spec"]["containers"][0]["resources"]["limits"]) == {"cpu", "memory"}


def test_a_variant_chooses_between_whole_gpus_and_a_part() -> None:
    parts = [{**VARIANTS[0], "resources": {"gpuFraction": 0.5}}, VARIANTS[1]]
    found = model(resources={"gpu": 2, "gpuResource": "amd.com/gpu"}, variants=parts)
    part, whole = (one.resources for one in found.spec.variants)
    assert (part.gpu, part.gpu_fraction, part.gpu_resource) == (0, 0.5, "")
    assert (whole.gpu, whole.gpu_fraction, whole.gpu_resource) == (2, None, "amd.com/gpu")


def test_a_percent_of_a_variant_makes_no_revision_and_one_variants_resources_make_one_of_all() -> None:
    shifted = [{**variant, "percent": 50} for variant in VARIANTS]
    assert templates(variants=shifted) == templates(variants=VARIANTS)
    bigger = [{**VARIANTS[0], "resources": {"cpu": "3"}}, VARIANTS[1]]
    former, present = templates(variants=VARIANTS), templates(variants=bigger)
    assert former["magika-v100"] != present["magika-v100"]
    labels = {one["metadata"]["labels"][LABEL_GENERATION] for one in present.values()}
    assert len(labels) == 1


def test_the_server_is_told_what_to_run_and_slots_only_by_the_hard_limit() -> None:
    [container] = templates(digest=DIGEST, scaleTarget=8)["magika"]["spec"]["containers"]
    assert container["args"] == [
        "--name", "magika", "--storage-uri", "file:///models/magika", "--digest", DIGEST, "--timeout", "300",
        "--cpu", "1",
    ]  # fmt: skip
    [container] = templates(containerConcurrency=2, resources={"cpu": "500m"})["magika"]["spec"]["containers"]
    assert container["args"][-6:] == ["--slots", "2", "--timeout", "300", "--cpu", "0.5"]


def test_the_record_of_first_digests_is_mounted_where_none_is_promised() -> None:
    [template] = templates().values()
    assert template["spec"]["volumes"][1] == {
        "name": "digests", "configMap": {"name": "knodel-digests-u1", "optional": True}
    }  # fmt: skip
    [promised] = templates(digest=DIGEST).values()
    assert [volume["name"] for volume in promised["spec"]["volumes"]] == ["scratch"]


def test_the_pod_is_restricted() -> None:
    spec = templates()["magika"]["spec"]
    [container] = spec["containers"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False
    assert container["env"] == [{"name": "KNODEL_DIGESTS", "value": "/etc/knodel/digests"}]


def test_types_of_gpu_select_nodes_the_best_first() -> None:
    made = templates(resources={"gpu": 1, "gpuTypes": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"]})["magika"]
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"]}
    ]
    weights = {
        one["preference"]["matchExpressions"][0]["values"][0]: one["weight"]
        for one in affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    }
    assert weights == {"NVIDIA-H100-80GB-HBM3": 100, "NVIDIA-L4": 50}
    assert made["metadata"]["annotations"][ANNOTATION_TYPES] == "NVIDIA-H100-80GB-HBM3,NVIDIA-L4"
    assert flags_needed(model(resources={"gpu": 1, "gpuTypes": ["NVIDIA-L4"]}), SETTINGS.server)[-1] is AFFINITY


def test_only_models_with_gpus_have_the_scheduler_and_its_queue() -> None:
    settings = Settings(server=ServerSettings(gpu_scheduler="volcano", gpu_queue="team-{namespace}"))
    with_gpu = make_templates(model(resources={"gpu": 1}), settings)["magika"]
    assert with_gpu["spec"]["schedulerName"] == "volcano"
    assert with_gpu["metadata"]["annotations"][VOLCANO_QUEUE] == "team-default"
    assert SCHEDULER_NAME in flags_needed(model(resources={"gpu": 1}), settings.server)
    assert make_templates(model(), settings) == make_templates(model(), SETTINGS)
    kai = Settings(server=ServerSettings(gpu_scheduler="kai-scheduler", gpu_queue="vision"))
    assert make_templates(model(resources={"gpu": 1}), kai)["magika"]["metadata"]["labels"][KAI_QUEUE] == "vision"


def test_only_models_with_gpus_have_the_priority_class() -> None:
    settings = Settings(server=ServerSettings(gpu_priority_class="knodel-serving"))
    with_gpu = make_templates(model(resources={"gpu": 1}), settings)["magika"]["spec"]
    assert with_gpu["priorityClassName"] == "knodel-serving"
    assert "priorityClassName" not in make_templates(model(), settings)["magika"]["spec"]


def test_priority_and_weight_are_annotations_unless_they_are_the_defaults() -> None:
    chosen = make_gpu_annotations(model(priority=500, weight=2.5).spec.gpu_share)
    assert chosen == {ANNOTATION_PRIORITY: "500", ANNOTATION_WEIGHT: "2.5"}
    assert make_gpu_annotations(model().spec.gpu_share) == dict.fromkeys(chosen)


def test_a_stored_model_owns_what_is_made_and_a_file_owns_nothing() -> None:
    service = make_service(model(), SETTINGS, first_traffic(model()))
    assert (controller_of(service) or {})["uid"] == "u1"
    assert labels_of(service)["knodel.dev/model"] == "magika"
    unstored = read_model(model_object())
    assert controller_of(make_service(unstored, SETTINGS, first_traffic(unstored))) is None


def test_the_hash_of_what_is_applied_follows_every_part_of_it() -> None:
    def applied(made: Object) -> str:
        return str(made["metadata"]["annotations"][ANNOTATION_APPLIED])

    base, traffic = model(), first_traffic(model())
    assert applied(make_service(base, SETTINGS, traffic)) == applied(make_service(model(), SETTINGS, traffic))
    hashes = {
        applied(make_service(base, SETTINGS, traffic)),
        applied(make_service(model(visibility="cluster-local"), SETTINGS, traffic)),
        applied(make_service(base, SETTINGS, [{"latestRevision": True, "percent": 100, "tag": "blue"}])),
        applied(make_route(base, traffic)),
    }
    assert len(hashes) == 4


def test_a_variant_is_a_configuration_of_its_own() -> None:
    made = make_configurations(model(variants=VARIANTS), SETTINGS)[0]
    assert made["metadata"]["name"] == "magika-a100"
    assert made["spec"]["template"]["metadata"]["labels"]["knodel.dev/variant"] == "a100"


def test_the_policy_carries_the_scaling_fields_and_respects_the_hard_limit() -> None:
    scaling = model(minReplicas=1, maxReplicas=6, scaleTarget=8, scaleToZeroAfter="5m").spec.scaling
    assert json.loads(make_policy(scaling, 0)) == {
        "minReplicas": 1, "maxReplicas": 6, "scaleTarget": 8.0, "targetUtilization": 0.7, "scaleToZeroAfter": 300.0,
        "holdQueue": 1000,
    }  # fmt: skip
    assert json.loads(make_policy(scaling, 2))["scaleTarget"] == 2.0


def test_the_autoscaler_takes_every_policy_at_the_bounds_of_a_model() -> None:
    for spec in (
        {"minReplicas": 1000, "maxReplicas": 1000, "scaleTarget": 0.01, "targetUtilization": 0.01, "holdQueue": 1},
        {
            "maxReplicas": 1,
            "scaleTarget": 1000,
            "targetUtilization": 1,
            "scaleToZeroAfter": "168h",
            "latencyObjective": "1h",
            "schedules": [{"cron": "0 0 L * *", "duration": "168h", "minReplicas": 1, "timeZone": "Asia/Kathmandu"}]
            * 16,
            "holdQueue": 100_000,
        },
    ):
        text = make_policy(model(**spec).spec.scaling, 0)
        assert Policy.from_annotations({"autoscaling.knodel.dev/policy": text}).to_json() == text


def container_of(**spec: Any) -> Object:
    """The container of a Model without variants."""
    [template] = templates(**spec).values()
    container: Object = template["spec"]["containers"][0]
    return container


def test_credentials_are_files_of_a_secret_and_a_variable_says_where() -> None:
    [template] = templates(storage={"secretRef": {"name": "keys"}}, digest=DIGEST).values()

    spec, container = template["spec"], template["spec"]["containers"][0]
    assert spec["volumes"][1] == {"name": "credentials", "secret": {"secretName": "keys"}}
    assert container["volumeMounts"][1] == {
        "name": "credentials", "mountPath": "/etc/knodel/credentials", "readOnly": True
    }  # fmt: skip
    assert container["env"] == [{"name": "KNODEL_CREDENTIALS", "value": "/etc/knodel/credentials"}]
    assert FOLDER == "KNODEL_CREDENTIALS"


def test_a_volume_claim_is_mounted_to_be_read_where_the_server_looks() -> None:
    [template] = templates(storageUri="pvc://models/magika").values()

    spec, container = template["spec"], template["spec"]["containers"][0]
    source = {"claimName": "models", "readOnly": True}
    assert spec["volumes"][1] == {"name": "claim", "persistentVolumeClaim": source}
    assert container["volumeMounts"][1] == {"name": "claim", "mountPath": str(VOLUMES / "models"), "readOnly": True}
    assert container["args"][2:4] == ["--storage-uri", "pvc://models/magika"]


def test_knative_takes_volume_claims_where_its_flag_is_on_and_names_it_where_not() -> None:
    service = make_service(model(storageUri="pvc://models/magika"), SETTINGS, first_traffic(model()))

    assert validators(KNATIVE_FEATURES | {VOLUME_CLAIMS.key})[SERVICE](None, service) == ()
    [fault] = validators()[SERVICE](None, service)
    assert VOLUME_CLAIMS.key in fault.message


@pytest.mark.parametrize("name", FORMATS)
def test_only_formats_that_run_code_are_allowed_to(name: str) -> None:
    assert ("--allow-code" in container_of(modelFormat=name)["args"]) == (name in CODE_FORMATS)


def test_the_server_understands_what_it_is_told_of_batches_and_code() -> None:
    arguments = container_of(modelFormat="python", batching={"maxBatchSize": 8, "maxLatency": "500us"})["args"]

    options = parse_options(arguments, {})

    assert options.assignment is not None
    assert options.assignment.bounds.batching == BatchBounds(8, 0.0005)
    assert (options.assignment.format, options.allow_code) == ("python", True)
    assert parse_options(container_of()["args"], {}).bounds.batching is None


def test_a_load_call_says_of_batches_what_the_arguments_say() -> None:
    [template] = templates(batching={"maxLatency": "1ms"}).values()
    call = claims.assignment_of(template, "magika-00001")
    assert call is not None

    assignment = parse_assignment(call.name, json.dumps(call.body()).encode(), ModelBounds(4, 300.0, 1.0))

    assert assignment.bounds.batching == BatchBounds(16, 0.001)


LLM: Object = {
    "contextLength": 4096, "embeddings": True, "toolParser": "hermes",
    "adapters": [{"name": "a", "uri": "s3://box/a", "digest": DIGEST}, {"name": "b", "uri": "pvc://loras/b"}],
    "engineArgs": {"seed": "-1", "template": "$(HOME) $$ $", "empty": ""},
}  # fmt: skip


def test_the_server_gets_the_same_options_of_a_language_model_by_arguments_and_by_a_load_call() -> None:
    [template] = templates(llm=LLM).values()
    arguments = [expand(word, {"HOME": "/root"}) for word in template["spec"]["containers"][0]["args"]]
    claim = claims.assignment_of(template, "magika-00001")
    assert claim is not None

    started = parse_options(arguments, {}).assignment
    claimed = parse_assignment(claim.name, json.dumps(claim.body()).encode(), ModelBounds(4, 300.0, 1.0))

    assert started is not None and started.llm == claimed.llm
    adapters = (AdapterSource("a", "s3://box/a", DIGEST), AdapterSource("b", "pvc://loras/b"))
    assert started.llm == LlmParameters(4096, True, adapters, "hermes", LLM["engineArgs"])


ADAPTERS = [{"name": "a", "uri": "s3://box/a"}, {"name": "b", "uri": "s3://box/b"}]
ROOM = {"engineArgs": {"max-lora-rank": "64"}}


def test_adapters_of_a_named_engine_that_loads_them_later_make_no_revision() -> None:
    one, two = ({"modelFormat": "vllm", "llm": {"adapters": ADAPTERS[:count]}} for count in (1, 2))
    assert templates(**one) == templates(**two)
    [template] = templates(**one).values()
    [container] = template["spec"]["containers"]
    assert {"name": "KNODEL_ADAPTERS", "value": "/etc/knodel/adapters"} in container["env"]
    assert "--adapter" not in container["args"]
    with_room = {"modelFormat": "vllm", "llm": {**ROOM, "adapters": ADAPTERS}}
    assert templates(**with_room) == templates(modelFormat="vllm", llm=ROOM)


@pytest.mark.parametrize("model_format", ["", "gguf"])
def test_other_adapters_are_part_of_the_version(model_format: str) -> None:
    spec = {"modelFormat": model_format} if model_format else {}
    [template] = templates(**spec, llm={"adapters": ADAPTERS[:1]}).values()
    assert "a=s3://box/a" in template["spec"]["containers"][0]["args"]
    assert templates(**spec, llm={"adapters": ADAPTERS}) != {"magika": template}


def test_the_order_of_engine_arguments_makes_no_revision() -> None:
    turned = dict(reversed(LLM["engineArgs"].items()))
    assert templates(llm=LLM) == templates(llm={**LLM, "engineArgs": turned})


def test_the_claims_of_adapters_are_mounted_as_well() -> None:
    [template] = templates(storageUri="pvc://models/m", llm=LLM).values()
    mounts = template["spec"]["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts if mount["name"].startswith("claim")] == [
        str(VOLUMES / "models"), str(VOLUMES / "loras"),
    ]  # fmt: skip
    service = make_service(model(storageUri="pvc://models/m", llm=LLM), SETTINGS, first_traffic(model()))
    assert validators(KNATIVE_FEATURES | {VOLUME_CLAIMS.key})[SERVICE](None, service) == ()
    assert VOLUME_CLAIMS in flags_needed(model(llm=LLM), SETTINGS.server)


def test_a_runtime_is_chosen_by_its_name_then_by_the_format() -> None:
    settings = Settings(runtimes=(Runtime("big", "r/big:1"), Runtime("sklearn", "r/sk:1")))

    def image(**spec: Any) -> str:
        [template] = make_templates(model(**spec), settings).values()
        return str(template["spec"]["containers"][0]["image"])

    assert image(runtime={"name": "big"}, modelFormat="sklearn") == "r/big:1"
    assert image(modelFormat="sklearn") == "r/sk:1"
    assert image(modelFormat="onnx") == image() == settings.server.image


def test_hosts_that_may_be_private_reach_the_server_as_a_variable_and_make_a_version() -> None:
    settings = Settings(server=ServerSettings(allow_hosts="models.internal"))
    [template] = make_templates(model(digest=DIGEST), settings).values()

    [container] = template["spec"]["containers"]
    assert container["env"] == [{"name": "KNODEL_ALLOW_HOSTS", "value": "models.internal"}]
    [plain] = make_templates(model(digest=DIGEST), SETTINGS).values()
    assert "env" not in plain["spec"]["containers"][0]
    assert plain["metadata"]["labels"] != template["metadata"]["labels"]


def test_a_collector_reaches_the_server_as_variables_of_opentelemetry_and_makes_a_version() -> None:
    server = ServerSettings(otlp_endpoint="http://collector:4318", otlp_signals="traces", trace_percent=5)
    settings = Settings(server=server)
    [template] = make_templates(model(digest=DIGEST), settings).values()

    [container] = template["spec"]["containers"]
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.05",
        "OTEL_METRICS_EXPORTER": "none",
    }
    [plain] = make_templates(model(digest=DIGEST), replace(SETTINGS, server=ServerSettings(trace_percent=5))).values()
    assert "env" not in plain["spec"]["containers"][0]
    assert plain["metadata"]["labels"] != template["metadata"]["labels"]


def service_container(url: str, settings: Settings = SETTINGS) -> Object:
    [template] = make_templates(read_model(service_object(ray={"service": url})), settings).values()
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["scratch"]  # no files, no digests
    [container] = template["spec"]["containers"]
    return dict(container)


def test_a_service_is_served_by_the_default_image_and_runs_no_code() -> None:
    settings = Settings(runtimes=(Runtime("ray", "r/ray:1"),))
    container = service_container("https://ray.example.org/rank", settings)
    assert container["image"] == settings.server.image
    assert container["args"][:6] == [
        "--name", "ranker", "--storage-uri", "ray+https://ray.example.org/rank", "--format", "ray",
    ]  # fmt: skip
    assert "--allow-code" not in container["args"]
    assert "env" not in container
    urls = ("https://ray.example.org/rank", "https://ray.example.org/rank/2", "http://ray.example.org/rank")
    labels = [
        template["metadata"]["labels"][LABEL_GENERATION]
        for url in urls
        for template in make_templates(read_model(service_object(ray={"service": url})), SETTINGS).values()
    ]
    assert len(set(labels)) == len(urls)  # another URL is another version


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("ranker-serve-svc", True),
        ("ranker-serve-svc.default.svc", True),
        ("ranker-serve-svc.default.svc.cluster.local", True),
        ("ranker-serve-svc.other.svc", False),
        ("ranker-serve-svc.other.svc.cluster.local", False),
        ("ranker-serve-svc.default", False),
        ("ranker-serve-svc.default.svc.example.org", False),
        ("a.ranker-serve-svc.default.svc", False),
        ("localhost", False),
        ("10.0.0.1", False),
        ("2130706433", False),
    ],
)
def test_only_services_of_the_namespace_may_have_private_addresses(host: str, own: bool) -> None:
    container = service_container(f"http://{host}:8000/rank")
    assert container.get("env") == ([{"name": "KNODEL_ALLOW_HOSTS", "value": host}] if own else None)
    settings = Settings(server=ServerSettings(allow_hosts="models.internal"))
    hosts = f"models.internal,{host}" if own else "models.internal"
    assert service_container(f"http://{host}", settings)["env"] == [{"name": "KNODEL_ALLOW_HOSTS", "value": hosts}]
