"""The output of `knodel render`: golden files, also checked against Knative's rules.

After an intended change: `WRITE_GOLDEN=1 pytest tests/serving/makers/test_render.py`, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from clusters.base.objects import CONFIGURATION, ROUTE, SERVICE
from serving.makers.knative import render
from serving.types.loader import load_objects, read_models
from serving.types.settings.settings import ServerSettings, Settings
from tests.support.knative_webhook.validation import VALIDATORS

GOLDEN = Path(__file__).parents[2] / "golden" / "render"
MODELS = sorted((GOLDEN / "models").glob("*.yaml"))
SETTINGS = Settings(server=ServerSettings(image="knodel.dev/server:test"))
KINDS = {kind.kind: kind for kind in (SERVICE, CONFIGURATION, ROUTE)}


@pytest.mark.parametrize("file", MODELS, ids=lambda file: file.stem)
def test_a_model_renders_as_its_golden_file_says(file: Path) -> None:
    [model] = read_models(file)
    rendered = render(model, SETTINGS)
    golden = GOLDEN / file.name
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(yaml.safe_dump_all(rendered, sort_keys=False, width=120))
    assert rendered == load_objects(golden.read_text(), str(golden))


@pytest.mark.parametrize("file", MODELS, ids=lambda file: file.stem)
def test_knative_takes_what_is_rendered(file: Path) -> None:
    [model] = read_models(file)
    for obj in (one for one in render(model, SETTINGS) if one["kind"] in KINDS):
        assert list(VALIDATORS[KINDS[obj["kind"]]](None, obj)) == []
