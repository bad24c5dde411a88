"""TensorFlow SavedModels."""
