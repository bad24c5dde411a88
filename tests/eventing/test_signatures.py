"""Webhook signatures: keys, signed content and time."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from eventing.auth.signatures import SCHEMES, BadKey, WebhookSignature, parse_signature, plain_key, standard_key
from tests.eventing.webhook import KEY, SECRET, signature

NOW = 1_700_000_000.0
BODY = b'{"a": 1}'
OTHER = "whsec_" + base64.b64encode(b"another key of thirty-two bytes!").decode()


def read(headers: dict[str, str], now: float = NOW) -> WebhookSignature | str:
    return parse_signature([(name.encode(), value.encode()) for name, value in headers.items()], now, 300, SCHEMES)


def is_by(headers: dict[str, str], *secrets: str, body: bytes = BODY) -> bool:
    found = read(headers)
    assert isinstance(found, WebhookSignature), found
    return found.is_by(secrets, body)


def test_the_example_of_standard_webhooks_is_taken() -> None:
    """A test vector of the specification."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    found = read(headers, now=1_614_265_330)

    assert isinstance(found, WebhookSignature)
    assert found.is_by(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], b'{"test": 2432232314}')


def test_a_signature_is_by_its_key_over_its_body() -> None:
    assert is_by(signature(BODY, NOW), SECRET)
    assert not is_by(signature(BODY, NOW), OTHER)
    assert not is_by(signature(BODY, NOW), SECRET, body=BODY + b" ")
    assert not is_by(signature(BODY, NOW))


@pytest.mark.fault("E11")
def test_while_keys_rotate_both_are_taken_and_a_sender_may_sign_by_both() -> None:
    assert is_by(signature(BODY, NOW), OTHER, SECRET)
    twice = signature(BODY, NOW)
    twice["webhook-signature"] = "v1,AAAA v1a,whatever " + twice["webhook-signature"]
    assert is_by(twice, SECRET)


def test_a_key_that_is_none_signs_nothing_and_spoils_nothing() -> None:
    assert is_by(signature(BODY, NOW), "whsec_short", "plain", SECRET)
    assert not is_by(signature(BODY, NOW, key=b""), "whsec_", "")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", base64.b64encode(KEY).decode(), "whsec_%%", "whsec_é"])
def test_a_key_is_base64_of_24_bytes_behind_its_prefix(secret: str) -> None:
    with pytest.raises(BadKey):
        standard_key(secret)


@pytest.mark.bad_input("event-signature")
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"webhook-id": "a.b"}, "without a point"),
        ({"webhook-id": ""}, "webhook-id"),
        ({"webhook-id": "x" * 257}, "256"),
        ({"webhook-timestamp": "now"}, "not a time in Unix seconds"),
        ({"webhook-timestamp": "-1"}, "not a time in Unix seconds"),
        ({"webhook-timestamp": "9" * 13}, "not a time in Unix seconds"),
        ({"webhook-timestamp": str(int(NOW) - 301)}, "more than 300 s"),
        ({"webhook-timestamp": str(int(NOW) + 301)}, "more than 300 s"),
    ],
)
@pytest.mark.fault("E11")
def test_a_signature_of_another_form_or_time_is_refused(change: dict[str, str], fault: str) -> None:
    found = read(signature(BODY, NOW) | change)

    assert isinstance(found, str)
    assert fault in found


@pytest.mark.parametrize("seconds", [-300, 300])
@pytest.mark.fault("E11")
def test_five_minutes_either_way_are_tolerated(seconds: int) -> None:
    headers = signature(BODY, NOW + seconds)

    assert is_by(headers, SECRET)


@pytest.mark.bad_input("event-signature")
@pytest.mark.parametrize("given", ["", "v1", "v1,", "v1,x", "v1,%%%%", "v0,AAAA", "sha1=AAAA", " ", "v1," + "A" * 8000])
def test_short_and_foreign_signatures_are_nobodys(given: str) -> None:
    headers = signature(BODY, NOW) | {"webhook-signature": given}

    assert not is_by(headers, SECRET)


@pytest.mark.bad_input("event-signature")
def test_a_missing_or_doubled_header_is_refused() -> None:
    assert read({}) == "the request has no webhook-signature"
    for missing in signature(BODY, NOW):
        headers = {name: value for name, value in signature(BODY, NOW).items() if name != missing}
        assert " once" in str(read(headers))
    pairs = [(name.encode(), value.encode()) for name, value in signature(BODY, NOW).items()]
    assert " once" in str(parse_signature([*pairs, pairs[2]], NOW, 300))


def by_mlflow(text: str) -> dict[str, str]:
    made = hmac.new(text.encode(), b"uuid-1." + str(int(NOW)).encode() + b"." + BODY, hashlib.sha256).digest()
    return {
        "x-mlflow-delivery-id": "uuid-1",
        "x-mlflow-timestamp": str(int(NOW)),
        "x-mlflow-signature": "v1," + base64.b64encode(made).decode(),
    }


def test_mlflow_signs_under_names_of_its_own_with_the_secrets_text() -> None:
    text = "twenty-four bytes or more"

    assert is_by(by_mlflow(text), text)
    assert not is_by(by_mlflow(text), "other words of some length")


@pytest.mark.parametrize("text", ["", "changeme", "x" * 23, "whsec_", "whsec_AAAA", SECRET])
def test_what_anybody_may_guess_or_is_a_key_of_the_other_scheme_signs_nothing_for_mlflow(text: str) -> None:
    assert not is_by(by_mlflow(text), text)
    with pytest.raises(BadKey):
        plain_key(text)


def test_headers_of_mlflow_are_none_where_cloud_events_come() -> None:
    headers = [(name.encode(), value.encode()) for name, value in by_mlflow("twenty-four bytes or more").items()]

    assert parse_signature(headers, NOW, 300) == "the request has no webhook-signature"
