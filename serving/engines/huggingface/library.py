"""Import the package `tokenizers` without threads of its own: requests run in parallel, and the engine counts threads.

Its threads would also prevent forking a pre-warmed process.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Encoding, Tokenizer

__all__ = ["Encoding", "Tokenizer"]
