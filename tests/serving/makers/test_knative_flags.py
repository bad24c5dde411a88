"""The flags of Knative that a Model needs, and when a flag is on."""

from __future__ import annotations

import pytest

from serving.makers.knative_flags import (
    ACTIVATOR_METRICS,
    EMPTY_DIR,
    FLAGS,
    NO_LIMIT,
    TAG_HEADER,
    VOLUME_CLAIMS,
    ZERO_INITIAL_SCALE,
    Flag,
    flags_needed,
)
from serving.types.settings.settings import ServerSettings
from tests.serving.models import model

SERVER = ServerSettings()


def test_every_model_needs_a_scratch_folder_and_by_default_no_limit() -> None:
    assert flags_needed(model(), SERVER) == (EMPTY_DIR, NO_LIMIT)
    assert flags_needed(model(containerConcurrency=4), SERVER) == (EMPTY_DIR,)


def test_a_tag_needs_routing_by_header() -> None:
    assert TAG_HEADER in flags_needed(model(traffic=[{"latest": True, "percent": 100, "tag": "blue"}]), SERVER)
    assert TAG_HEADER not in flags_needed(model(traffic=[{"latest": True, "percent": 100}]), SERVER)


def test_a_volume_claim_needs_its_flag() -> None:
    assert VOLUME_CLAIMS in flags_needed(model(storageUri="pvc://models/magika"), SERVER)
    assert VOLUME_CLAIMS not in flags_needed(model(storageUri="s3://models/magika"), SERVER)


@pytest.mark.parametrize(
    ("flag", "value", "on"),
    [
        (TAG_HEADER, None, False),
        (TAG_HEADER, "disabled", False),
        (TAG_HEADER, "allowed", False),
        (TAG_HEADER, "Enabled", True),
        (EMPTY_DIR, None, True),
        (EMPTY_DIR, "Allowed", True),
        (EMPTY_DIR, "disabled", False),
        (NO_LIMIT, None, True),
        (NO_LIMIT, "false", False),
        (NO_LIMIT, "TRUE", True),
        (ACTIVATOR_METRICS, None, False),
        (ACTIVATOR_METRICS, "http/protobuf", False),
        (ACTIVATOR_METRICS, "prometheus", True),
        (VOLUME_CLAIMS, None, False),
        (VOLUME_CLAIMS, "allowed", True),
        (ZERO_INITIAL_SCALE, None, False),
        (ZERO_INITIAL_SCALE, "T", True),
    ],
)
def test_a_flag_is_on_by_its_value_or_by_knatives_default(flag: Flag, value: str | None, on: bool) -> None:
    assert flag.is_on({} if value is None else {flag.key: value}) is on


def test_what_is_wanted_is_on_and_said_with_its_place() -> None:
    for flag in FLAGS:
        assert flag.is_on({flag.key: flag.wanted})
        assert flag.key in flag.remedy
        assert flag.configmap in flag.remedy
        assert flag.namespace == "knative-serving"


def test_what_an_administrator_chose_is_not_overwritten_but_knatives_default_is() -> None:
    assert ACTIVATOR_METRICS.may_be_set({})
    assert ACTIVATOR_METRICS.may_be_set({"metrics-protocol": "none"})
    assert not ACTIVATOR_METRICS.may_be_set({"metrics-protocol": "grpc"})
    assert TAG_HEADER.may_be_set({TAG_HEADER.key: "disabled"})


def test_a_flag_that_is_read_at_the_start_says_what_to_restart() -> None:
    assert ACTIVATOR_METRICS.remedy.endswith("knative-serving and restart its Deployment activator")
    assert "restart" not in TAG_HEADER.remedy


def test_a_rollout_needs_the_headers_by_which_its_judge_counts() -> None:
    assert TAG_HEADER in flags_needed(model(rollout={}), SERVER)
