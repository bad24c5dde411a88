"""Recorded failures of kube-apiserver 1.35, and their errors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clusters.base.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unavailable,
)  # fmt: skip
from clusters.base.objects import DEPLOYMENT, MODEL, NAMESPACE, POD
from clusters.kubernetes.cluster import collection_path, object_path
from clusters.kubernetes.errors import PatchRefused, translate
from clusters.kubernetes.status import LONGEST_TEXT, read_status
from clusters.kubernetes.watch import Lines, LineTooLong

WHAT = "models.knodel.dev 'ns/m'"


def told(code: int, message: str = "", reason: str = "", **details: Any) -> ClusterError:
    """The error that such an answer becomes."""
    status = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "details": details}
    return translate(WHAT, read_status(code, msgspec.json.encode(status | {"code": code})))


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> dict[str, str]:
    """A cause."""
    return {"reason": reason, "field": field, "message": message}


def refused(error: ClusterError) -> list[tuple[str, str]]:
    """Fields and messages."""
    assert isinstance(error, Invalid), error
    return [(one.path, one.message) for one in error.causes]


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (404, "NotFound", NotFound), (409, "AlreadyExists", AlreadyExists), (409, "Conflict", Conflict),
        (422, "Invalid", Invalid), (400, "BadRequest", Invalid), (413, "RequestEntityTooLarge", Invalid),
        (415, "UnsupportedMediaType", Invalid), (403, "Forbidden", Forbidden), (401, "Unauthorized", Forbidden),
        (410, "Gone", Gone), (410, "Expired", Gone), (429, "TooManyRequests", Unavailable),
        (503, "ServiceUnavailable", Unavailable), (500, "ServerTimeout", Unavailable), (504, "Timeout", Unavailable),
        (500, "InternalError", ClusterError), (400, "", Invalid), (401, "", Forbidden), (403, "", Forbidden),
        (404, "", NotFound), (405, "MethodNotAllowed", NotFound), (409, "", Conflict), (410, "", Gone),
        (422, "", Invalid), (429, "", Unavailable), (502, "", Unavailable), (503, "", Unavailable),
        (504, "", Unavailable), (500, "", ClusterError), (501, "Nonsense", ClusterError), (302, "", ClusterError),
    ],
)  # fmt: skip
def test_every_reason_and_code_has_its_error(code: int, reason: str, expected: type[ClusterError]) -> None:
    error = told(code, "two\nlines", reason)
    assert type(error) is expected
    assert WHAT in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b"<html>" + b"x" * 10**6, b"[1]", b"null", b"\xff\xfe"])
def test_an_answer_that_is_no_status_still_has_one_short_line(body: bytes) -> None:
    error = translate(WHAT, read_status(502, body))
    assert isinstance(error, Unavailable)
    assert "\n" not in str(error) and len(str(error)) < LONGEST_TEXT + 200


def test_a_status_of_the_wrong_shape_does_no_harm() -> None:
    body = b'{"code": "x", "details": [], "reason": 7, "message": {"a": 1}}'
    assert isinstance(translate(WHAT, read_status(503, body)), Unavailable)
    body = b'{"code": 422, "details": {"causes": [1, {"field": 3}], "retryAfterSeconds": "x"}}'
    assert isinstance(translate(WHAT, read_status(422, body)), Invalid)


def test_what_is_not_found_is_told_apart() -> None:
    assert str(told(404, 'models.knodel.dev "m" not found', "NotFound", name="m")) == f"{WHAT} not found"
    absent = told(404, 'namespaces "ns" not found', "NotFound", name="ns", kind="namespaces")
    assert "namespace 'ns' not found: create it first" in str(absent)
    assert "does not serve" in str(told(404, "the server could not find the requested resource", "NotFound"))
    itself = translate(
        "namespaces 'ns'", read_status(404, b'{"reason":"NotFound","details":{"name":"ns","kind":"namespaces"}}')
    )
    assert str(itself) == "namespaces 'ns' not found"


def test_a_terminating_namespace_is_as_good_as_none() -> None:
    error = told(403, "being terminated", "Forbidden", causes=[cause("metadata.namespace", "", "NamespaceTerminating")])
    assert isinstance(error, NotFound) and "being deleted" in str(error)


def test_a_server_that_was_just_started_is_not_ready_rather_than_unwilling() -> None:
    message = 'services.serving.knative.dev "m" is forbidden: not yet ready to handle request'
    assert isinstance(told(403, message, "Forbidden"), Unavailable)


def test_conflicts_name_every_field_and_its_owner() -> None:
    causes = [
        cause(".spec.b", 'conflict with "one" using v1', "FieldManagerConflict"),
        cause(".spec.a", 'conflict with "two" with subresource "scale" using v1 at 2026-11-21', "FieldManagerConflict"),
        cause(".spec.a", 'conflict with "one" using v1', "FieldManagerConflict"),
    ]
    error = told(409, "Apply failed with 3 conflicts", "Conflict", causes=causes)
    assert isinstance(error, Conflict) and error.fields == ("spec.a", "spec.b")
    assert "spec.a is owned by 'one'; spec.a is owned by 'two'; spec.b is owned by 'one'" in str(error)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Operation cannot be fulfilled on x: the object has been modified; please apply", "resourceVersion"),
        ("the UID in the precondition (a) does not match the UID in record (b). The object", "the uid is 'b', not 'a'"),
        (
            "the ResourceVersion in the precondition (3) does not match the ResourceVersion in record (4). T",
            "is '4', not '3'",
        ),
        ("uid mismatch: the provided object specified uid some, and no existing object was found", "uid mismatch"),
    ],
)
def test_other_conflicts_say_what_to_do(message: str, words: str) -> None:
    error = told(409, message, "Conflict")
    assert isinstance(error, Conflict) and error.fields == () and words in str(error)


def test_validation_names_its_fields_once() -> None:
    twice = [cause("metadata.uid", 'Invalid value: "x": field is immutable')] * 2
    assert refused(told(422, "…", "Invalid", causes=twice)) == [
        ("metadata.uid", 'Invalid value: "x": field is immutable'),
    ]
    scaled = [cause(".spec.replicas", "Invalid value: -1: should be a non-negative integer")]
    assert refused(told(422, "…", "Invalid", causes=scaled))[0][0] == "spec.replicas"


def test_a_rule_of_a_crd_speaks_for_itself() -> None:
    rule = [cause("spec", 'Invalid value: "object": minReplicas 5 is above maxReplicas 4')]
    assert refused(told(422, "…", "Invalid", causes=rule)) == [("spec", "minReplicas 5 is above maxReplicas 4")]
    nowhere = [cause("<nil>", 'Invalid value: "object": no')]
    assert refused(told(422, "…", "Invalid", causes=nowhere)) == [("", "no")]


@pytest.mark.parametrize("code", [422, 403])
def test_a_policy_speaks_for_itself(code: int) -> None:
    message = (
        "models.knodel.dev \"m\" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'names' denied request: "
        "the name is too long"
    )
    assert refused(told(422, message, "Invalid", causes=[{"message": message}])) == [("", "the name is too long")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("validation failed: missing field(s): spec.template.spec.containers",
         [("spec.template.spec.containers", "missing field(s)")]),
        ("validation failed: expected exactly one, got both: spec.a, spec.b",
         [("spec.a", "expected exactly one, got both"), ("spec.b", "expected exactly one, got both")]),
        ("validation failed: invalid value: not a DNS 1035 label: metadata.name\nmore of it",
         [("metadata.name", "invalid value: not a DNS 1035 label"), ("", "more of it")]),
        ("mutation failed: cannot decode incoming new object", [("", "cannot decode incoming new object")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [400, 403, 422])
def test_a_webhook_is_heard_without_its_preamble(code: int, words: str, expected: list[tuple[str, str]]) -> None:
    reason = {400: "BadRequest", 403: "Forbidden", 422: "Invalid"}[code]
    message = f'admission webhook "validation.webhook.serving.knative.dev" denied the request: {words}'
    assert refused(told(code, message, reason)) == expected


def test_a_webhook_that_says_nothing_is_heard_too() -> None:
    error = told(403, 'admission webhook "x" denied the request without explanation', "Forbidden")
    assert refused(error) == [("", "without explanation")]


def test_unknown_fields_are_named() -> None:
    strict = (
        'Model in version "v1" cannot be handled as a Model: strict decoding error: '
        'unknown field "metadata.lables", duplicate field "spec.a"'
    )
    assert refused(told(400, strict, "BadRequest")) == [
        ("metadata.lables", "unknown field"), ("spec.a", "duplicate field"),
    ]  # fmt: skip
    prefix = "failed to create typed patch object (ns/m; knodel.dev/v1alpha1, Kind=Model): "
    one = prefix + ".spec.foo: field not declared in schema"
    assert refused(told(500, one)) == [("spec.foo", "field not declared in schema")]
    two = prefix + "errors:\n  .foo: field not declared in schema\n  .spec.l: expected list, got &{x}"
    assert refused(told(500, two)) == [("foo", "field not declared in schema"), ("spec.l", "expected list, got &{x}")]


def test_a_version_at_creation_is_refused() -> None:
    error = told(500, "resourceVersion should not be set on objects to be created")
    assert refused(error)[0][0] == "metadata.resourceVersion"


def test_a_failed_json_patch_is_known_by_its_silence() -> None:
    error = told(422, "the server rejected our request due to an error in our request", "Invalid")
    assert isinstance(error, PatchRefused)


def test_a_restored_backup_is_gone() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    error = told(504, "Timeout: Too large resource version", "Timeout", causes=causes, retryAfterSeconds=1)
    assert isinstance(error, Gone)


def test_the_body_too_may_say_when_to_come_back() -> None:
    error = told(503, "", "ServiceUnavailable", retryAfterSeconds=4)
    assert isinstance(error, Unavailable) and error.retry_after == 4
    asked = told(429, "too many requests", "TooManyRequests")
    assert isinstance(asked, Unavailable) and asked.retry_after == 1
    assert translate(WHAT, read_status(500, b"x"), 3.0).__class__ is Unavailable


def test_every_field_error_is_one_line() -> None:
    error = told(422, "", "Invalid", causes=[cause("spec", "two\n\tlines")])
    assert error.args and refused(error) == [("spec", "two lines")]
    assert FieldError("a", "b") == FieldError("a", "b")


def test_paths_of_the_api() -> None:
    assert collection_path(POD, None) == "/api/v1/pods"
    assert collection_path(MODEL, "ns") == "/apis/knodel.dev/v1alpha1/namespaces/ns/models"
    assert object_path(NAMESPACE, "ns", "ignored") == "/api/v1/namespaces/ns"
    assert object_path(DEPLOYMENT, "a/b?c", "ns", "scale") == "/apis/apps/v1/namespaces/ns/deployments/a%2Fb%3Fc/scale"


def test_lines_are_the_same_however_the_network_cuts_them() -> None:
    data = b"one\n\n  \ntwo\r\n" + b"x" * 1000 + b"\nrest"
    whole = [b"one", b"two\r", b"x" * 1000]
    for size in (1, 2, 3, 7, 100, 5000):
        lines = Lines()
        assert [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])] == whole


def test_a_line_without_end_is_refused() -> None:
    lines = Lines(largest=10)
    assert list(lines.feed(b"123456789\n12345")) == [b"123456789"]
    with pytest.raises(LineTooLong):
        list(lines.feed(b"678901"))
