"""A decoder for the first step and one for later steps as branches of an If, as optimum merged them before 1.14."""

from onnx import TensorProto, helper

from graphpass.dialects.onnx.model import OnnxModel


def merged_decoder(model: OnnxModel) -> OnnxModel:
    """Return a model whose input ``use_cache_branch`` selects one of two copies of ``model``."""
    graph = model.proto.graph
    results = [port.name for port in graph.output]

    def branch(prefix: str):
        made = {name: prefix + name for node in graph.node for name in node.output if name}
        nodes = []
        for node in graph.node:
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            copy.input[:] = [made.get(name, name) for name in node.input]
            copy.output[:] = [made.get(name, name) for name in node.output]
            nodes.append(copy)
        kept = [helper.make_empty_tensor_value_info(made[name]) for name in results]
        return helper.make_graph(nodes, prefix, [], kept)

    chosen = helper.make_node(
        "If", ["use_cache_branch"], results, "merged", then_branch=branch("later/"), else_branch=branch("first/")
    )
    decider = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    whole = helper.make_graph([chosen], "merged", [*graph.input, decider], graph.output, graph.initializer)
    opsets = model.proto.opset_import
    return OnnxModel(helper.make_model(whole, opset_imports=opsets, ir_version=model.proto.ir_version))
