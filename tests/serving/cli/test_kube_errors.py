"""Test that each error of an API server becomes one line with a remedy and an exit code, in time."""

from __future__ import annotations

import pytest

from clusters.base.errors import Unavailable
from clusters.base.objects import MODEL, Object
from serving.client.client import Client
from serving.client.kubeconfig import KubeContext
from tests.serving.cli.conftest import Config, Knodel, check
from tests.serving.cli.kube import CONTEXT, NOTHING, FakeApi, Reply, Seen, failure

HERE = ("--kube-context", CONTEXT)
MODELS = "/apis/knodel.dev/v1alpha1/namespaces/default/models"
NO_PATH = Reply(404, text="404 page not found\n", headers={"Content-Type": "text/plain"})
MAGIKA: Object = {
    "apiVersion": "knodel.dev/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "magika", "namespace": "default", "resourceVersion": "1", "generation": 1},
    "spec": {"storageUri": "https://models.test/magika", "digest": f"sha256:{'0' * 64}"},
}
DENIED = (
    "models.knodel.dev \"magika\" is forbidden: ValidatingAdmissionPolicy 'knodel-models' with binding "
    "'knodel-models' denied request: spec.maxReplicas must not be below spec.minReplicas"
)
RIGHT = (
    'models.knodel.dev is forbidden: User "ann" cannot list resource "models" in API group "knodel.dev" in the '
    'namespace "default"'
)
TERMINATING = (
    'models.knodel.dev "magika" is forbidden: unable to create new content in namespace team because it is being '
    "terminated"
)
BAD_FIELD = (
    'Model.knodel.dev "magika" is invalid: spec.minReplicas: Invalid value: -1: spec.minReplicas in body should be '
    "greater than or equal to 0"
)
WEBHOOK = 'admission webhook "validation.webhook.example.org" denied the request: models need an owner'


def invalid(message: str, field: str = "") -> Reply:
    """Return a 422 like that of kube-apiserver."""
    cause = {"reason": "FieldValueInvalid", "message": message.partition(": ")[2]}
    return failure(422, "Invalid", message, causes=[cause | {"field": field}] if field else [cause])


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (
            failure(401, "Unauthorized", "Unauthorized"),
            1,
            ["does not accept the credentials of the context", "log in again"],
        ),
        (
            failure(403, "Forbidden", RIGHT),
            1,
            ['cannot list resource "models"', "ask the administrator of the cluster"],
        ),
        (
            failure(403, "Forbidden", TERMINATING, causes=[{"reason": "NamespaceTerminating"}]),
            1,
            ["is being terminated: wait until it is deleted\n"],
        ),
        (NO_PATH, 1, ["does not serve models.knodel.dev", "`knodel install --kube-context lab`"]),
        (
            failure(404, "NotFound", "the server could not find the requested resource"),
            1,
            ["does not serve models.knodel.dev", "`knodel install --kube-context lab`"],
        ),
        (failure(400, "BadRequest", "unable to parse"), 2, ["unable to parse"]),
        (failure(500, "InternalError", "etcdserver: request timed out"), 1, ["etcdserver"]),
        (failure(503, "ServiceUnavailable", "the server is starting"), 1, ["is starting"]),
        (failure(504, "Timeout", "request did not complete"), 1, ["did not complete"]),
        (Reply(502, text="<html>Bad Gateway</html>"), 1, ["HTTP 502", "without a Kubernetes Status"]),
        (Reply(200, text="<html>Log in</html>"), 1, ["is not JSON"]),
        (Reply(302, text="", headers={"Location": "https://example.org"}), 1, ["HTTP 302"]),
    ],
)
def test_a_failed_list_is_an_error_with_the_reason(
    knodel: Knodel, api: FakeApi, config: Config, reply: Reply, code: int, words: list[str]
) -> None:
    api.script = lambda _: reply

    check(knodel("list", *HERE), code, words)


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (invalid(BAD_FIELD, "spec.minReplicas"), 2, ["spec.minReplicas: ", "greater than or equal to 0"]),
        (invalid(DENIED), 2, ["knodel-models", "spec.maxReplicas must not be below"]),
        (failure(403, "Forbidden", WEBHOOK), 2, ["models need an owner"]),
        (failure(400, "", WEBHOOK), 2, ["models need an owner"]),
        (failure(403, "Forbidden", 'models "magika" is forbidden: exceeded quota: q'), 1, ["exceeded quota"]),
        (
            failure(400, "BadRequest", 'strict decoding error: unknown field "spec.colour"'),
            2,
            ['unknown field "spec.colour"'],
        ),
        (
            failure(500, "InternalError", 'failed calling webhook "w": connection refused'),
            1,
            ["failed calling webhook"],
        ),
        (failure(409, "Conflict", "the object has been modified"), 1, ["changed by another client", "run the command"]),
    ],
)
def test_a_refused_write_is_an_error_with_the_reason(
    knodel: Knodel, api: FakeApi, config: Config, reply: Reply, code: int, words: list[str]
) -> None:
    api.script = lambda seen: reply if seen.method == "PATCH" else one_model(seen)

    check(knodel("deploy", "magika", "--min", "1", *HERE), code, words)
    assert all(seen.query.get("fieldValidation") == "Strict" for seen in api.seen if seen.method == "PATCH")


def one_model(seen: Seen) -> Reply:
    """Provide a cluster with the Model magika."""
    if seen.path == f"{MODELS}/magika":
        return Reply(200, MAGIKA)
    if seen.path.startswith(f"{MODELS}/"):
        return failure(404, "NotFound", "not found")
    return Reply(200, {"items": [MAGIKA]}) if seen.path == MODELS else NOTHING


def test_an_unknown_name_and_an_unknown_kind_have_different_messages(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    api.script = lambda _: failure(404, "NotFound", 'models.knodel.dev "magika" not found', name="magika")

    check(knodel("get", "magika", *HERE), 3, ["model magika not found in namespace default: `knodel list -A "])


def test_without_knative_its_absence_is_named(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = lambda seen: NO_PATH if "serving.knative.dev" in seen.path else one_model(seen)

    check(knodel("promote", "magika", *HERE), 1, ["revisions.serving.knative.dev", "Knative Serving", "knodel doctor"])


@pytest.mark.fault("C4")
def test_one_of_two_simultaneous_creations_is_a_conflict(knodel: Knodel, api: FakeApi, config: Config) -> None:
    def script(seen: Seen) -> Reply:
        if seen.method == "POST":
            return failure(409, "AlreadyExists", 'models.knodel.dev "magika" already exists')
        return NOTHING if seen.path == MODELS else failure(404, "NotFound", "not found")

    api.script = script

    check(knodel("deploy", "magika", "--uri", "https://m", *HERE), 1, ["created by another client", "run the"])


@pytest.mark.fault("C4")
def test_a_change_of_the_spec_meanwhile_is_not_written_over(knodel: Knodel, api: FakeApi, config: Config) -> None:
    reads = iter(range(1, 100))

    def script(seen: Seen) -> Reply:
        if seen.method == "PATCH":
            return failure(409, "Conflict", "the object has been modified")
        if seen.path == f"{MODELS}/magika":
            return Reply(200, {**MAGIKA, "metadata": {**MAGIKA["metadata"], "generation": next(reads)}})
        return one_model(seen)

    api.script = script

    check(knodel("deploy", "magika", "--min", "1", *HERE), 1, ["changed by another client meanwhile"])
    assert [seen.method for seen in api.seen].count("PATCH") == 1


def test_a_namespace_that_is_not_there_is_named(knodel: Knodel, api: FakeApi, config: Config) -> None:
    def script(seen: Seen) -> Reply:
        return (
            NOTHING if seen.path.endswith("/models") and seen.method == "GET" else failure(404, "NotFound", "not found")
        )

    api.script = script

    done = knodel("deploy", "magika", "--uri", "https://m", "-n", "team", *HERE)

    check(done, 3, ["namespace team not found", "`knodel namespace team --kube-context lab`"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--min", "5", "--max", "2"), ["models.knodel.dev 'magika': spec.minReplicas"]),
        (("--digest", "sha256:7"), ["spec.digest"]),
        (("--canary", "101"), ["spec.canaryTrafficPercent"]),
    ],
)
def test_a_model_is_checked_before_it_is_sent(
    knodel: Knodel, api: FakeApi, config: Config, arguments: tuple[str, ...], words: list[str]
) -> None:
    api.script = one_model

    check(knodel("deploy", "magika", *arguments, *HERE), 2, words)
    check(knodel("deploy", "fresh", "--uri", "https://m", *arguments, *HERE), 2, [words[0].replace("magika", "fresh")])
    assert {seen.method for seen in api.seen} == {"GET"}


def test_a_host_of_another_model_is_refused_before_it_is_sent(knodel: Knodel, api: FakeApi, config: Config) -> None:
    other = {
        **MAGIKA,
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {"storageUri": "https://m", "variants": [{"name": "a", "percent": 100}]},
    }
    api.script = lambda seen: Reply(200, {"items": [other]}) if seen.path == MODELS else failure(404, "NotFound", "no")

    done = knodel("deploy", "other-a", "--uri", "https://m", *HERE)

    check(done, 2, ["metadata.name: the name other-a belongs to model other"])


def test_who_may_not_list_models_may_deploy_all_the_same(knodel: Knodel, api: FakeApi, config: Config) -> None:
    def script(seen: Seen) -> Reply:
        if seen.path == MODELS:
            return failure(403, "Forbidden", RIGHT)
        return Reply(200, {**MAGIKA, "spec": {**MAGIKA["spec"], **(seen.body or {}).get("spec", {})}})

    api.script = script

    done = knodel("deploy", "magika", "--min", "1", "--no-wait", *HERE)

    assert (done.code, done.err) == (0, "")


def test_a_server_that_asks_for_another_try_gets_it(knodel: Knodel, api: FakeApi, config: Config) -> None:
    replies = iter([Reply(429, failure(429, "TooManyRequests", "slow").value, headers={"Retry-After": "0"}), NOTHING])
    api.script = lambda _: next(replies)

    assert knodel("list", *HERE).code == 0
    assert len(api.seen) == 2


def test_a_server_that_asks_for_too_much_patience_is_given_up(api: FakeApi, config: Config) -> None:
    api.script = lambda _: Reply(429, failure(429, "TooManyRequests", "slow").value, headers={"Retry-After": "100"})

    with pytest.raises(Unavailable, match="slow"):
        Client(KubeContext.find(CONTEXT).connect(), 5.0).list(MODEL, "default")
