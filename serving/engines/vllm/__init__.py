"""Language models by vLLM, as Hugging Face's folders have them: `config.json`, safetensors, a tokenizer."""
