"""Commands that messages of the product advise, each with an example of the command as a user types it."""

from __future__ import annotations

PLACEHOLDERS = ("SOURCE", "BUCKET", "GLOB", "PREFIX", "@FILE", "FILE", "NAME", "LABEL")
"""Placeholders that users must replace, since a message cannot know the value."""
ADVICE = {
    "KNODEL_GATEWAY_HOSTS=NAME knodel up --detach": "KNODEL_GATEWAY_HOSTS=models.lan knodel up --detach",
    "KNODEL_GATEWAY_HOSTS={} knodel up --detach{}":
        "KNODEL_GATEWAY_HOSTS=proxy.lan,models.lan knodel up --detach --port 9380 --control-tls-port 9443",
    "knodel --help": "knodel --help",
    "knodel abort {}": "knodel abort iris",
    "knodel config --describe": "knodel config --describe",
    "knodel config --kube-context {} --set artifacts.prefix=s3://BUCKET/PREFIX":
        "knodel config --kube-context prod --set artifacts.prefix=s3://models/team",
    "knodel deploy {} --rollout": "knodel deploy iris --rollout",
    "knodel deploy {} --version LABEL": "knodel deploy iris --version 8",
    "knodel describe {}": "knodel describe iris",
    "knodel doctor": "knodel doctor",
    "knodel doctor --full": "knodel doctor --full",
    "knodel doctor --kube-context NAME": "knodel doctor --kube-context prod",
    "knodel doctor --kube-context {}": "knodel doctor --kube-context prod",
    "knodel down": "knodel down",
    "knodel down --force": "knodel down --force",
    "knodel env add {} --kube-context NAME": "knodel env add prod --kube-context gke",
    "knodel env remove {}": "knodel env remove prod",
    "knodel events allow SOURCE --models GLOB --storage-prefix PREFIX":
        "knodel events allow ci/new --models iris --storage-prefix s3://models/",
    "knodel events allow SOURCE --models NAME --storage-prefix PREFIX":
        "knodel events allow ci/other --models iris --storage-prefix s3://models/",
    "knodel events allow SOURCE --rotate": "knodel events allow ci/train --rotate",
    "knodel events allow {}": "knodel events allow ci/train",
    "knodel events allow {} --rotate": "knodel events allow ci/train --rotate",
    "knodel events list": "knodel events list",
    "knodel events replay {}": "knodel events replay train-42",
    "knodel events show {}": "knodel events show train-42",
    "knodel events sources": "knodel events sources",
    "knodel events sources -A": "knodel events sources -A",
    "knodel explain {}": "knodel explain iris",
    "knodel get NAME": "knodel get iris",
    "knodel get {}": "knodel get iris",
    "knodel init --list": "knodel init --list",
    "knodel history {}": "knodel history iris",
    "knodel install --kube-context {}": "knodel install --kube-context prod",
    "knodel install --kube-context NAME --configure-knative": "knodel install --kube-context prod --configure-knative",
    "knodel list": "knodel list",
    "knodel list -A": "knodel list -A",
    "knodel list --env {}": "knodel list --env prod",
    "knodel logs {}": "knodel logs iris",
    "knodel namespace {}": "knodel namespace team",
    "knodel namespace NAME --label knodel.dev/allow-code=true":
        "knodel namespace team --label knodel.dev/allow-code=true",
    "knodel namespace {} --label {}={}": "knodel namespace team --label knodel.dev/allow-code=true",
    "knodel pool list": "knodel pool list",
    "knodel pool set {} --like {} --size 1{}": "knodel pool set onnx --like iris --size 1 -n default",
    "knodel pool set {} --size 1": "knodel pool set fast --size 1",
    "knodel predict {} -d @FILE": "knodel predict iris -d @request.json",
    "knodel promote {}": "knodel promote iris",
    "knodel serve {}": "knodel serve model.onnx",
    "knodel uninstall --kube-context {}": "knodel uninstall --kube-context prod",
    "knodel up": "knodel up",
    "knodel up --config FILE": "knodel up --config settings.yaml",
    "knodel up --detach": "knodel up --detach",
    "knodel up --detach{}": "knodel up --detach --port 9380",
    "knodel wait {}": "knodel wait iris",
    "knodel {}": "knodel serve model.onnx",
    "knodel {} --kube-context NAME": "knodel install --kube-context prod",
}  # fmt: skip
