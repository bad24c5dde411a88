"""Results of each kind, with texts that would break a page that does not escape them."""

from __future__ import annotations

from typing import Any

import numpy as np

from knodel.results.chat import Chat
from knodel.results.explanation import Explanation, ReplicaStart, ScalingDecision, StartStep
from knodel.results.model import (
    Model,
    ModelHistory,
    ModelList,
    ModelNotice,
    ModelNoticeList,
    ModelVersion,
    ReplicaCounts,
    TrafficSplit,
    TrafficTarget,
)
from knodel.results.prediction import Prediction, PredictionOutput
from knodel.results.rollout import RolloutStep

EVIL = "<script>alert('x')</script>\"&"
AT = "2026-11-26T04:00:00Z"

SPLIT = TrafficSplit(
    (
        TrafficTarget("iris-00001", 90, "1", "stable"),
        TrafficTarget("iris-00002", 10, EVIL),
        TrafficTarget("old", 0, "0"),
    )
)
COUNTS = {
    "stable": {"requests": 400, "errors": 2, "latency": {"40": 10, "43": 30}},
    "candidate": {"requests": 44, "errors": 0, "latency": {"41": 4}},
}
STEP = RolloutStep(
    "iris",
    "Progressing",
    "iris-00002",
    "iris-00001",
    1,
    3,
    10,
    AT,
    AT,
    AT,
    "",
    "wait",
    (EVIL, "needs 40 more requests"),
    {"stable.latency": 0.0041, "candidate.latency": 0.0052},
    {"counts": COUNTS},
)


def model(name: str = "iris", **fields: Any) -> Model:
    given: dict[str, Any] = {
        "name": name, "namespace": "default", "ready": True, "reason": "", "url": "http://127.0.0.1:8080/x",
        "storage_uri": f"file:///m/{EVIL}", "digest": f"sha256:{'ab' * 32}", "format": "sklearn", "version": "2",
        "newest": "iris-00002", "newest_ready": "iris-00002", "replicas": ReplicaCounts(2, 1, 1), "traffic": SPLIT,
        "rollout": STEP, "conditions": (), "created_at": AT, "object": {},
    }  # fmt: skip
    return Model(**given | fields)


START = ReplicaStart(
    AT,
    "iris-00001",
    "iris-00001-abc",
    "cold",
    812,
    "sklearn",
    (StartStep("process", 12), StartStep("import", 420.5), StartStep(EVIL, 300)),
    {"load": 290},
)
BROKEN = model("broken", ready=False, reason=EVIL, traffic=TrafficSplit(), rollout=None, url="", version="")
HISTORY = ModelHistory(
    "iris",
    (
        ModelVersion("iris-00001", "1", "promoted", "deploy", AT, AT, f"sha256:{'cd' * 32}", "file:///m/1"),
        ModelVersion("iris-00002", EVIL, "rolledback", "event", AT, "", "", ""),
        ModelVersion("iris-00003", "3", "", "", AT, "", "", ""),
    ),
)
NOTICES = ModelNoticeList(
    "iris", (ModelNotice(AT, "Normal", "Scaled", "0 → 1"), ModelNotice(AT, "Warning", "DigestMismatch", EVIL, 3))
)
EXPLANATION = Explanation(
    model(),
    f"10 % by {EVIL}",
    (ScalingDecision(AT, "iris-00001", 0, 1, ("8 slots busy", EVIL)),),
    (START,),
    (EVIL,),
    (),
)
PREDICTION = Prediction(
    "iris",
    "iris-00002",
    "id",
    0.0043,
    (
        PredictionOutput("label", "BYTES", (25,), np.array([EVIL.encode(), *[b"a"] * 24], dtype=object)),
        PredictionOutput("probabilities", "FP64", (25, 3), np.full((25, 3), 0.25)),
    ),
    {"start": 512.0, "infer": 4.0},
    (0.512, 0.0041, 0.0043),
)
CHAT = Chat("llm", "llm-00001", f"Hello\n{EVIL}", "length", {"prompt_tokens": 7, "completion_tokens": 20}, {})
RESULTS = (
    model(),
    BROKEN,
    ModelList((model(), BROKEN)),
    ModelList(),
    NOTICES,
    ModelNoticeList("iris"),
    HISTORY,
    ModelHistory("iris"),
    SPLIT,
    TrafficSplit(),
    STEP,
    EXPLANATION,
    CHAT,
    Chat("m", "", "", "stop"),
    PREDICTION,
    Prediction("m", "", "", 0.1, ()),
    Prediction(
        "m", "", "", 0.1, (PredictionOutput("x", "FP64", (), np.float64(3)), PredictionOutput("y", "FP64", (0,), []))
    ),
)
