"""Reductions in the form in which OpenVINO's CPU plugin computes them right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.openvino.rewrite import integers, named
from graphpass.ir.operators import REDUCTIONS

if TYPE_CHECKING:
    import openvino

__all__ = ["keep_reduced_axes"]


def keep_reduced_axes(model: openvino.Model) -> None:
    """Let reductions of ``[batch, channels, n]`` to ``[batch, channels]`` keep the last axis, and drop it afterwards.

    The CPU plugin fuses a reduction with what is added to or multiplied with it by channel, and takes the number of one
    channel for all where there is more than one row: measured on 2026.4.1, on the bias of a convolution that was
    exported as a sum of products. (openvino issue 23616 is the same with one row, mended in
    ``src/plugins/intel_cpu/src/nodes/reduce.cpp`` by pull request 23970.) Nothing is fused over a Squeeze.
    """
    from openvino import opset13

    for op in model.get_ordered_ops():
        if op.get_type_name() not in REDUCTIONS or op.get_attributes()["keep_dims"] or not _is_by_channel(op):
            continue
        output, name = op.output(0), op.get_friendly_name()
        readers, names = list(output.get_target_inputs()), output.get_names()
        op.set_attribute("keep_dims", True)
        op.validate_and_infer_types()
        squeezed = named(opset13.squeeze(op, integers([2], f"{name}/axis")), f"{name}/squeezed")
        output.set_names(set())
        squeezed.output(0).set_names(names)
        for reader in readers:
            reader.replace_source_output(squeezed.output(0))


def _is_by_channel(op: openvino.Node) -> bool:
    rank, axis = op.get_input_partial_shape(0).rank, op.input_value(1).get_node()
    if rank.is_dynamic or rank.get_length() != 3 or axis.get_type_name() != "Constant":
        return False
    return axis.data.ravel().tolist() in ([2], [-1]) and bool(op.get_output_element_type(0).is_real())
