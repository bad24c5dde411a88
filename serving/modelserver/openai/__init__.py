"""OpenAI's and Anthropic's APIs: passed on to engines that are servers of their own, and codecs for embeddings."""
