"""Products with weights in 4 or 8 bits equal the dequantized products that OpenVINO's frontend makes of them."""

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper
from verify.structure.comparing import is_equal, read_by_openvino

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.packed_bits import packed

BLOCK = 16


def arrays(bits, outputs, blocks, *, zeros=False, bias=False):
    """Return the initializers of a weight ``[outputs, blocks * BLOCK]``."""
    random = numpy.random.default_rng(3)

    def integers(*shape):
        return packed(random.integers(0, 2**bits, shape, numpy.uint8), bits)

    made = {"weight": integers(outputs, blocks, BLOCK), "scales": random.random((outputs, blocks), numpy.float32)}
    if zeros:
        made["zeros"] = integers(outputs, blocks)
    if bias:
        made["bias"] = random.random(outputs, numpy.float32)
    return made


def model_of(kind, ports, initializers, inputs, **attributes):
    """Return a model of one operator; its result is read twice, because a result read once would be a cache."""
    node = helper.make_node(kind, ports, ["y"], "node", domain="com.microsoft", **attributes)
    result = helper.make_node("Concat", ["y", "y"], ["logits"], "twice", axis=-1)
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", None])]
    tensors = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    graph = helper.make_graph([node, result], "graph", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def product(made, bits, **given):
    outputs, blocks = made["scales"].shape
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", blocks * BLOCK])
    ports = ["hidden", "weight", "scales", "zeros" if "zeros" in made else "", "", "bias" if "bias" in made else ""]
    while not ports[-1]:
        ports.pop()
    sizes = {"K": blocks * BLOCK, "N": outputs, "bits": bits, "block_size": BLOCK}
    return model_of("MatMulNBits", ports, made, [hidden], **sizes | given)


def rows(made, bits, **given):
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    flat = made | {"weight": made["weight"].reshape(len(made["scales"]), -1)}
    ports = ["weight", "input_ids", "scales", *(["zeros"] if "zeros" in made else [])]
    sizes = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
    return model_of("GatherBlockQuantized", ports, flat, [ids], **sizes | given)


@pytest.mark.parametrize("build", [product, rows])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "outputs", "blocks"), [(4, 6, 4), (4, 6, 3), (8, 6, 4), (4, 160, 4), (4, 160, 3)])
def test_dequantized_weights_are_equal(build, bits, outputs, blocks, zeros):
    made = arrays(bits, outputs, blocks, zeros=zeros)
    reference = build(made, bits)
    assert is_equal(reference, read_by_openvino(reference))
    for name in made:
        other = made | {name: made[name].copy()}
        flat = other[name].reshape(-1)
        flat[-1] = flat[-1] ^ 16 if flat.dtype == numpy.uint8 else flat[-1] * 1.001
        assert not is_equal(reference, read_by_openvino(build(other, bits))), name


def test_products_with_a_bias_are_equal():
    made = arrays(4, 6, 4, bias=True)
    reference = product(made, 4)
    assert is_equal(reference, read_by_openvino(reference))
    made["bias"] = made["bias"] + 1
    assert not is_equal(reference, product(made, 4))


def test_rows_without_blocks_are_equal():
    """DequantizeLinear reads the same bytes as a matrix."""
    made = arrays(8, 160, 4)
    tensors = {"weight": made["weight"].reshape(160, 64), "scales": made["scales"]}
    initializers = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    initializers.append(numpy_helper.from_array(numpy.full((160, 4), 128, numpy.uint8), "middle"))
    nodes = [
        helper.make_node("DequantizeLinear", ["weight", "scales", "middle"], ["wide"], axis=1, block_size=BLOCK),
        helper.make_node("Transpose", ["wide"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["hidden", "turned"], ["y"]),
        helper.make_node("Concat", ["y", "y"], ["logits"], axis=-1),
    ]
    reference = product(made, 8)
    (output,) = reference.proto.graph.output
    graph = helper.make_graph(nodes, "graph", reference.proto.graph.input, [output], initializers)
    other = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert is_equal(reference, other)
    assert is_equal(other, reference)


def test_rows_of_reshaped_bytes_are_equal():
    """Exports that share the embedding with the last product read it through a Reshape."""
    made = arrays(4, 160, 4)
    reference = rows(made, 4)
    other = reference.clone()
    graph = other.proto.graph
    graph.initializer[0].CopyFrom(numpy_helper.from_array(made["weight"], "stored"))
    graph.initializer.append(numpy_helper.from_array(numpy.array([160, -1]), "sizes"))
    graph.node.insert(0, helper.make_node("Reshape", ["stored", "sizes"], ["weight"], "view"))
    assert is_equal(reference, OnnxModel(other.proto))


def test_weights_of_8_bits_are_not_those_of_4():
    made = arrays(8, 6, 4)
    halves = {"weight": made["weight"].reshape(6, 8, 8), "scales": numpy.repeat(made["scales"], 2, axis=1)}
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", 64])
    sizes = {"K": 64, "N": 6, "block_size": 8}
    eight, four = (
        model_of("MatMulNBits", ["hidden", "weight", "scales"], halves, [hidden], bits=bits, **sizes) for bits in (8, 4)
    )
    assert is_equal(eight, eight.clone())
    assert not is_equal(eight, four)


def test_rounded_activations_are_equal_only_if_the_reference_permits_them():
    made = arrays(4, 6, 4)
    exact, rounded = product(made, 4), product(made, 4, accuracy_level=4)
    assert is_equal(rounded, exact)
    assert is_equal(rounded, rounded.clone())
    assert not is_equal(exact, rounded)
    assert is_equal(exact, product(made, 4, accuracy_level=1))


def test_reordered_inputs_have_no_definition():
    made = arrays(4, 6, 4) | {"order": numpy.zeros(64, numpy.int32)}
    hidden = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", 64])
    sizes = {"K": 64, "N": 6, "bits": 4, "block_size": BLOCK}
    ports = ["hidden", "weight", "scales", "", "order"]
    reordered = model_of("MatMulNBits", ports, made, [hidden], **sizes)
    assert is_equal(reordered, reordered.clone())
    assert not is_equal(reordered, product(made, 4))
