"""PaddlePaddle inference models."""
