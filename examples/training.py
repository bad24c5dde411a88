r"""Train a model, keep it, and send Knodel the event: the new version is served as soon as it is loaded.

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
    """(model, accuracy on flowers that it has not seen)."""
    features, species = load_iris(return_X_y=True)
    parts = train_test_split(features, species, random_state=seed, stratify=species)
    seen, unseen, species_of_seen, species_of_unseen = parts
    model = LogisticRegression(max_iter=iterations).fit(seen, species_of_seen)
    return model, float(model.score(unseen, species_of_unseen))


def main() -> None:
    """Train, keep, tell."""
    parser = argparse.ArgumentParser(description="Train iris and tell Knodel.")
    parser.add_argument("folder", type=Path, help="where versions are kept")
    parser.add_argument("--address", default="", help="where the platform finds that folder (default: at its path)")
    parser.add_argument("--model", default="iris", help="name of the Model (default: iris)")
    parser.add_argument("--version", default=f"{datetime.now(UTC):%Y%m%d-%H%M%S}", help="default: the time")
    parser.add_argument("--iterations", type=int, default=1000, help="of the solver (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the split in seen and unseen flowers (default: 0)")
    parser.add_argument("--no-event", action="store_true", help="only train and keep the model")
    given = parser.parse_args()

    model, accuracy = train(given.iterations, given.seed)
    artifact = given.folder.absolute() / given.version / "model.skops"
    artifact.parent.mkdir(parents=True, exist_ok=True)
    skops.io.dump(model, artifact)
    print(f"version {given.version} of {given.model}: accuracy {accuracy:.3f}, kept in {artifact.parent}")
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
    print(f"told Knodel: event {event}")


if __name__ == "__main__":
    main()
