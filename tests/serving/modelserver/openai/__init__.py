"""Tests of the endpoints of OpenAI and Anthropic."""
