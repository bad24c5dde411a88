"""Train an iris classifier, and store it in the folder `model`."""

from pathlib import Path

import skops.io
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

FILE = Path(__file__).parent / "model" / "model.skops"


def main() -> None:
    """Train, print the accuracy, and store the model."""
    features, species = load_iris(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(features, species, random_state=0, stratify=species)
    model = LogisticRegression(max_iter=1000).fit(train_x, train_y)
    skops.io.dump(model, FILE)
    print(f"accuracy {model.score(test_x, test_y):.3f}, stored in {FILE}")


if __name__ == "__main__":
    main()
