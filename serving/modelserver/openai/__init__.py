"""The endpoints of OpenAI and Anthropic, which engines that are servers of their own answer."""
