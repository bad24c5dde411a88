r"""Train a model, store it, and send its event to Knodel, which then serves the new version.

    knodel up --detach
    export KNODEL_EVENTS_URL=http://127.0.0.1:8081/events
    export KNODEL_EVENTS_SECRET=$(knodel events allow /training/iris --models iris \
        --storage-prefix file:///tmp/iris/ --create-models --key-only)
    python examples/training.py /tmp/iris
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import skops.io
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from knodel import NotEmitted, emit_training_completed


def train(iterations: int, seed: int) -> tuple[Any, float]:
    """Train a model; return it with its accuracy on the test set."""
    features, species = load_iris(return_X_y=True)
    parts = train_test_split(features, species, random_state=seed, stratify=species)
    train_features, test_features, train_species, test_species = parts
    model = LogisticRegression(max_iter=iterations).fit(train_features, train_species)
    return model, float(model.score(test_features, test_species))


def main() -> None:
    """Train a model, store it and send its event."""
    parser = argparse.ArgumentParser(description="Train an iris classifier and send its event to Knodel.")
    parser.add_argument("folder", type=Path, help="folder of the versions")
    parser.add_argument("--address", default="", help="URI of that folder for the platform (default: its path)")
    parser.add_argument("--model", default="iris", help="name of the Model (default: iris)")
    parser.add_argument(
        "--version", default=f"{datetime.now(UTC):%Y%m%d-%H%M%S}", help="version label (default: the time)"
    )
    parser.add_argument("--iterations", type=int, default=1000, help="maximum iterations of the solver (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split into training and test set (default: 0)")
    parser.add_argument("--no-event", action="store_true", help="do not send an event")
    given = parser.parse_args()

    model, accuracy = train(given.iterations, given.seed)
    artifact = given.folder.absolute() / given.version / "model.skops"
    artifact.parent.mkdir(parents=True, exist_ok=True)
    skops.io.dump(model, artifact)
    print(f"version {given.version} of {given.model}: accuracy {accuracy:.3f}, stored in {artifact.parent}")
    if given.no_event:
        return

    try:
        event = emit_training_completed(
            given.model,
            f"{given.address}/{given.version}/{artifact.name}" if given.address else artifact.parent,
            version=given.version,
            model_format="sklearn",
            metrics={"accuracy": accuracy},
            id=f"{given.model}-{given.version}",
        )
    except (NotEmitted, ValueError) as error:
        sys.exit(f"training.py: {' '.join(str(error).split())}")  # to stderr, with exit code 1
    print(f"sent event {event}")


if __name__ == "__main__":
    main()
