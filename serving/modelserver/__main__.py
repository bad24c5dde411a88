"""`python -m serving.modelserver`."""

from __future__ import annotations

import gc
import logging
import os
import sys

gc.disable()  # imports make much, and nothing to collect; `main` enables it when they are done

from serving.modelserver.main import main  # noqa: E402 - see above

code = main(sys.argv[1:])
logging.shutdown()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # all is closed; an inference that hangs in a thread must not keep the process, or crash in its teardown
