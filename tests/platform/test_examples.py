"""Test that the examples run as described in the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.objects import KINDS, REVISION
from serving.client.client import Client
from serving.client.state import LocalPlatform
from serving.makers.knative import render
from serving.types.loader import read_models
from serving.types.settings.settings import load_settings
from serving.types.validation import validate_model
from tests.platform.machine import machine
from tests.support.knative_webhook.validation import VALIDATORS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def test_the_quickstart_prints_the_response_of_a_real_model(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        ports = {"KNODEL_GATEWAY_PORT": str(here.port), "KNODEL_CONTROL_PORT": str(here.control)}
        for _ in range(2):  # `make run` finds the platform of the first one up
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples" / "quickstart.py")],
                env=here.environment | ports,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )

            assert done.returncode == 0, done.stderr
            assert re.search(r"quickstart\.py as python \(score [01]\.\d+\)", done.stdout)
            assert f"127.0.0.1:{here.port}" in done.stdout
        assert len(Client(LocalPlatform.find(here.state)).list(REVISION, "default")["items"]) == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_is_valid_and_renders_what_knative_takes(path: Path) -> None:
    by_kind = {(kind.api_version, kind.kind): kind for kind in KINDS}
    for model in read_models(path):
        assert list(validate_model(None, model)) == []
        for obj in render(
            {**model, "metadata": {"namespace": "default", **model["metadata"]}}, load_settings(None, {})
        ):
            validator = VALIDATORS.get(by_kind[obj["apiVersion"], obj["kind"]])
            assert validator is None or list(validator(None, obj)) == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
