"""Type every command of pages that need minutes or stores into one shell for each page, in the state it begins with."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docsite.sources import ROOT
from tests.support import small_gguf
from tests.support.guide import ANYTHING
from tests.support.hub import hub
from tests.support.models import times
from tests.support.pages import type_page
from tests.support.s3 import HOST, KEYS, fill, s3_server

UP = "knodel up --detach"
QWEN = "hf://Qwen/Qwen2.5-0.5B-Instruct-GGUF"
TOKEN = "hf_secret"
MEASURED = re.compile(r"^((?:iris-\d+|total) +infer +|)[\d. ]+( requests per second.*|)$", re.MULTILINE)
"""What the machine on which a page was written measured."""

pytestmark = pytest.mark.timeout(900)


def test_every_command_of_language_models_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = tmp_path / "tone-lora" / "adapter.gguf"
    adapter.parent.mkdir()
    small_gguf.write_adapter(str(adapter))
    model = {"qwen.gguf": small_gguf.content(context=4096)}
    with hub(HOST, TOKEN, model) as endpoint, s3_server() as store:
        fill(store, "models", {"legal-lora/4/adapter.gguf": adapter.read_bytes()})
        keys = {**KEYS, "AWS_ENDPOINT_URL": store, "HF_TOKEN": TOKEN, "HF_ENDPOINT": endpoint}
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        secret = f"knodel secret hub {' '.join(f'--env {name}' for name in keys)}"
        before = (UP, secret, f"knodel deploy assistant --uri {QWEN} --secret hub --no-wait")
        type_page(ROOT / "docs" / "llm.md", tmp_path, before=before)


def test_every_command_of_ray_works(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    type_page(ROOT / "docs" / "ray.md", tmp_path, "9000")


def test_the_deployment_of_the_page_of_ray_has_our_policy() -> None:
    text = (ROOT / "docs" / "ray.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = f"{code}\nprint(Ranker._deployment_config.autoscaling_config.policy.get_policy().__module__)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True)
    assert done.stdout == "knodel.ray\n", done.stderr


def test_every_command_of_bench_works(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    text = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
    page.write_text(MEASURED.sub(lambda found: f"{found[1]}{ANYTHING}{found[2]}", text))
    for version in (1, 2):
        (tmp_path / f"{version}.onnx").write_bytes(times(version))
    (tmp_path / "loadtests").symlink_to(ROOT / "loadtests")
    deploy = "knodel deploy iris --min 1 --wait --uri"
    type_page(page, tmp_path, before=(UP, f"{deploy} 1.onnx", f"{deploy} 2.onnx --canary 10"))
