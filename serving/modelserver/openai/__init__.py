"""OpenAI's API: codecs of its requests and responses."""
