"""`python -m serving.modelserver`."""

from __future__ import annotations

import gc
import logging
import os
import sys

gc.disable()  # imports allocate many objects and leave no garbage; `main` enables the collector after them

from serving.modelserver.main import main  # noqa: E402 - see above

code = main(sys.argv[1:])
logging.shutdown()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # an inference that hangs in a thread must neither keep the process nor crash it during the teardown
