"""A small server with OpenAI's paths, in the place of llama.cpp or vLLM: its answers are exact and immediate."""
