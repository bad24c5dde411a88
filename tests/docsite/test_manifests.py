"""Every manifest of our kinds in a page is valid by the JSON schema that editors use, and Models by admission."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from clusters.base.objects import MODEL
from serving.types.validation import validate_model
from tests.docsite.sources import ROOT, find_sources

SCHEMA = json.loads((ROOT / "docs" / "schema" / "knodel.json").read_text(encoding="utf-8"))
FENCED = re.compile(r"^( *)```yaml[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    apiVersion: knodel\.dev/(?:.*\n)(?:    .*\n|\n(?=    ))*", re.MULTILINE)
VALUES = {"sha256:…": f"sha256:{64 * '0'}", "MODEL_URI": "https://models.example/a.onnx"}
"""Placeholders of pages, and values for them."""
WHOLE: dict[str, Any] = {
    "apiVersion": "knodel.dev/v1alpha1", "kind": MODEL.kind, "metadata": {"name": "a"},
    "spec": {"storageUri": "s3://models/a/"},
}  # fmt: skip


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (page, manifest) for each manifest of a kind of ours."""
    for source in find_sources().pages:
        text = (ROOT / source).read_text(encoding="utf-8")
        blocks = [found[2] for found in FENCED.finditer(text)] + INDENTED.findall(FENCED.sub("", text))
        for block in blocks:
            for placeholder, value in VALUES.items():
                block = block.replace(placeholder, value)
            for document in yaml.safe_load_all(textwrap.dedent(block)):
                if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("knodel.dev/"):
                    yield source, document
                elif isinstance(document, dict) and set(document) == {"spec"}:  # the part that a page is about
                    yield source, {**WHOLE, "spec": {**WHOLE["spec"], **document["spec"]}}


FOUND = list(manifests())


def test_there_are_manifests_of_each_kind() -> None:
    assert {"Model", "EventSource"} <= {document["kind"] for _, document in FOUND}


@pytest.mark.parametrize(("page", "document"), FOUND, ids=[f"{page}-{one['kind']}" for page, one in FOUND])
def test_a_manifest_is_valid(page: str, document: dict[str, Any]) -> None:
    jsonschema.validate(document, SCHEMA)
    if document["kind"] == MODEL.kind:
        assert validate_model(None, document) == []
