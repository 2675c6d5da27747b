"""A trial of a third party's runtime, which is a few lines of Python."""

from __future__ import annotations

import os

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.findings import Observation
from graphpass.ir.model import Model


def observe(model: Model) -> Observation | str:
    """Try the runtime, unless SAMPLE_RUNTIME says that it is not installed."""
    assert isinstance(model, OpenVINOModel)
    if os.environ.get("SAMPLE_RUNTIME") == "none":
        return "the sample runtime is not installed here"
    last = model.ov_model.output("logits").get_node().input_value(0).get_node()
    refused = None if last.get_type_name() == "Multiply" else "output is not scaled"
    return Observation("ran the sample runtime", refused=refused)
