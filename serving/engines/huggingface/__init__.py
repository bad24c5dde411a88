"""Folders of Hugging Face with an ONNX export: tokenizer, model and result of one task."""
