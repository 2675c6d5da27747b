"""Bodies whose numbers of inputs or outputs do not match their node."""

import pytest
from onnx import TensorProto, helper

from graphpass.dialects.onnx.body_ports import misfit_in


def body(inputs, outputs):
    ports = [[helper.make_tensor_value_info(f"{side}{n}", TensorProto.FLOAT, []) for n in range(count)]
             for side, count in (("i", inputs), ("o", outputs))]  # fmt: skip
    return helper.make_graph([], "body", *ports)


def misfit(op, inputs, outputs, opset=21, domain="", **attributes):
    names = [[f"{side}{n}" for n in range(count)] for side, count in (("x", inputs), ("y", outputs))]
    node = helper.make_node(op, *names, name="n", domain=domain, **attributes)
    graph = helper.make_graph([node], "g", [], [])
    return misfit_in(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (("If", 1, 2, {"then_branch": body(0, 2), "else_branch": body(0, 3)}), None),
        (("If", 1, 2, {"then_branch": body(0, 2), "else_branch": body(0, 1)}), "1 outputs, expected 2"),
        (("If", 1, 1, {"then_branch": body(0, 1)}), "0 outputs, expected 1"),
        (("Loop", 4, 3, {"body": body(4, 4)}), None),
        (("Loop", 4, 3, {"body": body(3, 4)}), "3 inputs, expected 4"),
        (("Loop", 4, 3, {"body": body(4, 3)}), "3 outputs, expected 4"),
        (("Scan", 3, 2, {"body": body(3, 2), "num_scan_inputs": 1}), None),
        (("Scan", 3, 2, {"body": body(3, 2), "num_scan_inputs": 4}), "num_scan_inputs is 4, of 3 inputs"),
        (("Scan", 3, 2, {"body": body(3, 2)}), "num_scan_inputs is 0"),
        (("Relu", 1, 1, {}), None),
    ],
)
def test_numbers_of_ports(node, reason):
    op, inputs, outputs, attributes = node
    found = misfit(op, inputs, outputs, **attributes)
    assert found is None if reason is None else reason in found
    assert misfit(op, inputs, outputs, domain="other", **attributes) is None


@pytest.mark.parametrize(("opset", "fits"), [(8, True), (9, False)])
def test_scans_had_an_input_for_lengths_before_opset_9(opset, fits):
    assert (misfit("Scan", 4, 2, opset, body=body(3, 2), num_scan_inputs=1) is None) == fits
