"""Bearer tokens: issuer, audience, subject and expiry."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from eventing.auth.oidc import IssuerUnreachable, Tokens
from eventing.errors import TryLater
from eventing.objects.ports import OidcAuth
from tests.eventing.issuer import AUTH, ISSUER, Issuer
from tests.eventing.webhook import SOURCE, Webhook, event, event_source
from tests.support.clock import SteppedClock


async def refusal(token: str, clock: SteppedClock, issuer: Issuer, auth: OidcAuth = AUTH) -> str:
    return await Tokens(issuer, clock, leeway=60).refusal(token, auth)


async def test_a_token_of_the_right_issuer_audience_and_subject_passes() -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)

    assert await refusal(issuer.token(), clock, issuer) == ""
    assert await refusal(issuer.token(aud=["other", "knodel"]), clock, issuer) == ""


@pytest.mark.bad_input("event-token")
@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"sub": "somebody"},
        {"sub": None},
        {"aud": None},
        {"iss": None},
        {"exp": None},
        {"exp": 1},
        {"exp": "tomorrow"},
        {"exp": True},
        {"nbf": 4_000_000_000},
    ],
)
async def test_a_token_with_another_or_missing_claim_does_not(claims: dict[str, Any]) -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)

    assert await refusal(issuer.token(**claims), clock, issuer)


async def test_a_token_expires_by_our_clock_with_a_minutes_leeway_though_it_was_seen_before() -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)
    tokens, token = Tokens(issuer, clock, leeway=60), issuer.token()

    answers = []
    for seconds in (0, 3600, 59, 1):
        clock.step(seconds)
        answers.append(await tokens.refusal(token, AUTH))

    assert answers == ["", "", "", "the token has expired"]


async def test_a_token_is_verified_once_a_minute_and_for_each_audience() -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)
    tokens, token = Tokens(issuer, clock, leeway=60), issuer.token()

    for _ in range(3):
        assert await tokens.refusal(token, AUTH) == ""
    assert issuer.asked == 1
    assert await tokens.refusal(token, OidcAuth(ISSUER, "another", AUTH.subject))
    clock.step(61)
    await tokens.refusal(token, AUTH)
    assert issuer.asked == 2


@pytest.mark.parametrize(
    "auth",
    [
        OidcAuth("https://slow.example", AUTH.audience, AUTH.subject),
        OidcAuth(ISSUER, "another", AUTH.subject),
        OidcAuth(ISSUER, AUTH.audience, "somebody"),
    ],
)
async def test_no_issuer_is_asked_for_a_token_that_does_not_say_it_is_for_that_event_source(auth: OidcAuth) -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)

    assert await refusal(issuer.token(), clock, issuer, auth)
    assert issuer.asked == 0


def accounts(*namespaces: str) -> tuple[Webhook, dict[str, str]]:
    """Return EventSources in these namespaces for a service account in `a`, and its token."""
    clock = SteppedClock()
    issuer = Issuer(clock)
    auth = OidcAuth(ISSUER, AUTH.audience, "system:serviceaccount:a:training-jobs")
    sources = [event_source(namespace=one, auth=auth) for one in namespaces]
    token = issuer.token(sub=auth.subject)
    return Webhook(sources=sources, clock=clock, issuers=issuer), {"authorization": f"Bearer {token}"}


async def test_a_service_account_counts_in_its_own_namespace_though_a_copy_elsewhere_ranks_first() -> None:
    webhook, headers = accounts("0-mallory", "a", "b")

    assert (await webhook.send(event(), headers=headers, sign=False)).status == 202
    [entry] = webhook.ledger.entries.values()
    assert entry.event_source.namespace == "a"
    for status, namespace in ((401, "b"), (202, "knodel-system")):
        alone, headers = accounts(namespace)
        assert (await alone.send(event(), headers=headers, sign=False)).status == status


async def test_a_token_that_counts_in_two_namespaces_is_refused_and_told_where_to_send() -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)
    sources = [event_source(namespace=one, auth=AUTH) for one in ("a", "b")]
    webhook = Webhook(
        sources=[*sources, event_source(namespace="a", name="second", auth=AUTH)], clock=clock, issuers=issuer
    )
    headers = {"authorization": f"Bearer {issuer.token()}"}

    anywhere = await webhook.send(event(), headers=headers, sign=False)
    assert (anywhere.status, webhook.ledger.entries) == (403, {})
    assert "/events/NAMESPACE/NAME" in anywhere.json["error"]

    named = await webhook.send(event(), headers=headers, path="/events/b/training", sign=False)
    [entry] = webhook.ledger.entries.values()
    assert (named.status, entry.event_source.namespace) == (202, "b")


async def test_two_event_sources_of_one_namespace_are_taken_in_their_order() -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)
    sources = [event_source(name=one, auth=AUTH) for one in ("first", "second")]
    webhook = Webhook(sources=sources, clock=clock, issuers=issuer)

    reply = await webhook.send(event(), headers={"authorization": f"Bearer {issuer.token()}"}, sign=False)

    assert reply.status == 202
    assert [entry.event_source.name for entry in webhook.ledger.entries.values()] == ["first"]


@pytest.mark.bad_input("event-token")
async def test_a_signature_that_is_changed_unsigned_or_by_a_shared_secret_does_not_pass() -> None:
    clock = SteppedClock()
    issuer, stranger = Issuer(clock), Issuer(clock)
    head, body, signature = issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "root"}).encode()).decode().rstrip("=")

    for token in (
        f"{head}.{body}.{'A' * len(signature)}",
        f"{head}.{forged}.{signature}",
        issuer.token("none"),
        issuer.token("HS256"),
        stranger.token(),
        issuer.token(headers={"kid": "unknown"}),
        "a.b.c",
        "",
        "x" * 20_000,
        "not a token",
        "é.é.é",
    ):
        assert await refusal(token, clock, issuer), token


async def test_when_the_issuer_does_not_answer_it_is_503_not_401() -> None:
    class Silent:
        async def key(self, issuer: str, kid: str) -> None:
            raise IssuerUnreachable(f"{issuer} does not answer")

    clock = SteppedClock()
    with pytest.raises(TryLater):
        await Tokens(Silent(), clock, leeway=60).refusal(Issuer(clock).token(), AUTH)

    webhook = Webhook(sources=[event_source(auth=AUTH)], clock=clock, issuers=Silent())
    reply = await webhook.send(event(), headers={"authorization": f"Bearer {Issuer(clock).token()}"}, sign=False)
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  "])
async def test_the_webhook_takes_a_binary_event_with_a_token(scheme: str) -> None:
    clock = SteppedClock()
    issuer = Issuer(clock)
    webhook = Webhook(sources=[event_source(auth=AUTH)], clock=clock, issuers=issuer)
    sent = event()
    headers = {f"ce-{name}": sent[name] for name in ("specversion", "id", "source", "type")}

    reply = await webhook.send(
        sent["data"], "application/json", headers | {"authorization": scheme + issuer.token()}, sign=False
    )

    assert reply.status == 202
    assert [entry.mapped.source for entry in webhook.ledger.entries.values()] == [SOURCE]


@pytest.mark.bad_input("event-token")
@pytest.mark.parametrize("authorization", ["", "Basic YTpi", "Bearer", "Bearer x.y.z"])
async def test_the_webhook_answers_401_to_another_authorization(authorization: str) -> None:
    clock = SteppedClock()
    webhook = Webhook(sources=[event_source(auth=AUTH)], clock=clock, issuers=Issuer(clock))

    reply = await webhook.send(event(), headers={"authorization": authorization}, sign=False)

    assert reply.status == 401
