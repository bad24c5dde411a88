"""Every YAML block of a page is read by what reads it in the product; manifests of our kinds are admitted.

The blocks of other products are in `OTHERS`.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from autoscaler.gpu.elastic import JOB, read_job
from clusters.base.objects import EVENT_SOURCE, MODEL, WARM_POOL
from serving.client.environments import read_environments
from serving.types.event_source import validate_event_source
from serving.types.settings.settings import Settings, settings_from_text
from serving.types.validation import validate_model
from serving.types.warm_pool import validate_warm_pool
from tests.docsite.sources import ROOT, find_sources

SCHEMA = json.loads((ROOT / "docs" / "schema" / "knodel.json").read_text(encoding="utf-8"))
VALIDATORS = {
    MODEL.kind: validate_model, WARM_POOL.kind: validate_warm_pool, EVENT_SOURCE.kind: validate_event_source,
}  # fmt: skip
FENCED = re.compile(r"^( *)```yaml[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    [A-Za-z]+:(?: .*)?\n)(?:    .*\n|\n(?=    ))*")
"""An indented block whose first line is a field."""
VALUES = {"sha256:…": f"sha256:{64 * '0'}", "MODEL_URI": "https://models.example/a.onnx"}
"""Placeholders of pages, and values for them."""
WHOLE: dict[str, Any] = {
    "apiVersion": "knodel.dev/v1alpha1", "kind": MODEL.kind, "metadata": {"name": "a"},
    "spec": {"storageUri": "s3://models/a/"},
}  # fmt: skip
JOB_SPEC = {"parallelism": 4, "template": {}}
"""The part of an elastic Job that pages leave out."""
SETTINGS = {*Settings.__annotations__}
ENVIRONMENTS = {"default", "environments"}
OTHERS = {
    ("docs/observability.md", "datasources"): "Grafana reads it",
    ("docs/observability.md", "distributor"): "Tempo reads it",
    ("manifests/README.md", "images"): "kustomize reads it, with the address of your registry",
    ("docs/from-kserve.md", "InferenceService"): "an object of KServe; tests/long/test_from_kserve.py imports it",
}
"""Blocks that the product does not read, by page and by their kind or a field: the reason."""


def blocks() -> Iterator[tuple[str, str]]:
    """Yield (page, text) for each block of YAML."""
    for source in find_sources().pages:
        text = (ROOT / source).read_text(encoding="utf-8")
        for block in [found[2] for found in FENCED.finditer(text)] + INDENTED.findall(FENCED.sub("", text)):
            for placeholder, value in VALUES.items():
                block = block.replace(placeholder, value)
            yield source, textwrap.dedent(block)


BLOCKS = list(blocks())


def test_there_are_blocks_of_each_kind() -> None:
    kinds = {document.get("kind") for _, block in BLOCKS for document in yaml.safe_load_all(block)}
    assert {MODEL.kind, EVENT_SOURCE.kind, JOB.kind} <= kinds


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}-{block.split(chr(10))[0]}" for page, block in BLOCKS])
def test_a_block_is_valid(page: str, block: str, tmp_path: Path) -> None:
    for document in yaml.safe_load_all(block):
        fields = {*document}
        if str(document.get("apiVersion", "")).startswith("knodel.dev/"):
            check_manifest(document)
        elif fields == {"spec"}:  # the part of a Model that a page is about
            check_manifest({**WHOLE, "spec": {**WHOLE["spec"], **document["spec"]}})
        elif fields <= SETTINGS:
            assert settings_from_text(block, page) != settings_from_text("", page)
        elif fields == ENVIRONMENTS:
            (tmp_path / "environments.yaml").write_text(block)
            assert {*read_environments(tmp_path / "environments.yaml").known} == {*document["environments"]}
        elif document.get("kind") == JOB.kind:
            assert read_job(JOB, {**document, "spec": JOB_SPEC}) is not None
        else:
            assert any((page, name) in OTHERS for name in {document.get("kind"), *fields}), block


def check_manifest(document: dict[str, Any]) -> None:
    """Check an object of ours by the JSON schema that editors use, and by admission."""
    jsonschema.validate(document, SCHEMA)
    faults = VALIDATORS[document["kind"]](None, document)
    assert list(faults) == []
