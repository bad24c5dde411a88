"""The quickstart of `make run`: start the platform, deploy the magika model, and classify this file with it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from magika_client import best_label, infer_request, model_file

KNODEL = [sys.executable, "-m", "serving.cli.main"]
INPUT = Path(__file__)


def knodel(*arguments: str, stdin: str | None = None) -> str:
    """Run a `knodel` command and return its output. Exit with its code if it fails."""
    done = subprocess.run([*KNODEL, *arguments], input=stdin, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def step(text: str, began: float) -> None:
    """Print a completed step and its duration."""
    print(f"  {text}  ({time.monotonic() - began:.2f} s)")


def main() -> None:
    """Run the quickstart."""
    began = time.monotonic()
    platform = json.loads(knodel("up", "--detach", "-o", "json"))
    step("the platform is up", began)

    began = time.monotonic()
    knodel("deploy", "magika", "--uri", str(model_file()), "--version", "v3.3", "--wait")
    step("the model magika is deployed and ready", began)

    began = time.monotonic()
    response = json.loads(knodel("predict", "magika", "-d", "@-", stdin=json.dumps(infer_request(INPUT.read_bytes()))))
    label, score = best_label(response)
    step(f"magika classifies {INPUT.name} as {label} (score {score:.3f})", began)

    gateway, control = platform["gateway"], platform["control_tls"]
    print(
        f"""
  gateway  http://{gateway}    curl http://{gateway}/v2/models/magika
  control  https://{control}   kubectl --kubeconfig {platform["state"]}/kubeconfig get models

  Three things to try next:
    .venv/bin/knodel list
    .venv/bin/knodel deploy magika --uri {model_file()} --version v3.3b --canary 10
    .venv/bin/knodel explain magika

  The platform keeps running until `make stop`."""
    )


if __name__ == "__main__":
    main()
