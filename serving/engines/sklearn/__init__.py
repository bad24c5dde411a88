"""scikit-learn models: skops, pickle and joblib."""
