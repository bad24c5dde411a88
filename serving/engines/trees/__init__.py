"""XGBoost and LightGBM models."""
