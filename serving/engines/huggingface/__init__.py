"""Folders of Hugging Face: tokenizer, model and result of one task."""
