"""`python -m serving.server`."""

from __future__ import annotations

import logging
import os
import sys

from serving.server.main import main

code = main(sys.argv[1:])
logging.shutdown()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # all is closed; an inference that hangs in a thread must not keep the process, or crash in its teardown
