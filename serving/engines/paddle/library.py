"""PaddlePaddle, imported without its greetings: what is wrong comes as exceptions."""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("GLOG_minloglevel", "2")  # errors only; read when the library is loaded
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that a compiler's cache is missing
    from paddle import inference
    from paddle.base import core  # no public name: reads programs of the form before release 3

__all__ = ["core", "inference"]
