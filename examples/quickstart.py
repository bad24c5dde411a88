"""`make run`: start the platform, deploy a real model, ask it what kind of file this one is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from magika_client import best_label, infer_request, model_file

KNODEL = [sys.executable, "-m", "serving.cli.main"]
ASKED = Path(__file__)


def knodel(*arguments: str, stdin: str | None = None) -> str:
    """Run one command of `knodel`, return what it prints; a failure ends this script with its message."""
    done = subprocess.run([*KNODEL, *arguments], input=stdin, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def step(text: str, began: float) -> None:
    """Say what was done and how long it took."""
    print(f"  {text}  ({time.monotonic() - began:.2f} s)")


def main() -> None:
    """The quickstart."""
    began = time.monotonic()
    platform = json.loads(knodel("up", "--detach", "-o", "json"))
    step("the platform is up", began)

    began = time.monotonic()
    knodel("deploy", "magika", "--uri", str(model_file()), "--version", "v3.3", "--wait")
    step("the model magika is deployed and ready", began)

    began = time.monotonic()
    answer = json.loads(knodel("predict", "magika", "-d", "@-", stdin=json.dumps(infer_request(ASKED.read_bytes()))))
    label, score = best_label(answer)
    step(f"it says that {ASKED.name} is {label} (score {score:.3f})", began)

    gateway, control = platform["gateway"], platform["control_tls"]
    print(
        f"""
  gateway  http://{gateway}    curl http://{gateway}/v2/models/magika
  control  https://{control}   kubectl --kubeconfig {platform["state"]}/kubeconfig get models

  Three things to try next:
    .venv/bin/knodel list
    .venv/bin/knodel deploy magika --uri {model_file()} --version v3.3b --canary 10
    .venv/bin/knodel explain magika

  The platform stays up; `make stop` ends it."""
    )


if __name__ == "__main__":
    main()
