"""Train the scikit-learn model in the environment of each server: pickles need equal versions.

    python train_iris.py FOLDER [--skops]

Write FOLDER/model.joblib, FOLDER/weights.json (the same weights for other formats) and, with `--skops`,
FOLDER/model.skops.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression


def main(folder: Path, with_skops: bool) -> None:
    """Write the files."""
    features, labels = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(features, labels)
    joblib.dump(model, folder / "model.joblib")
    weights = {"coefficients": model.coef_.tolist(), "intercepts": model.intercept_.tolist()}
    (folder / "weights.json").write_text(json.dumps(weights))
    if with_skops:
        import skops.io

        skops.io.dump(model, folder / "model.skops")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--skops" in sys.argv)
