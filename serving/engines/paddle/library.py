"""Import PaddlePaddle without its banner and warnings; errors are raised as exceptions."""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("GLOG_minloglevel", "2")  # errors only; read when the library is loaded
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns about a missing compiler cache
    from paddle import inference
    from paddle.base import core  # not public: reads programs saved before release 3

__all__ = ["core", "inference"]
