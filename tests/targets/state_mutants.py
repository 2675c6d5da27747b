"""Copies of a stateful model whose caches no longer have the one form that plugins fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openvino import opset8, opset13

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.dialects.openvino.model import OpenVINOModel


def without_gather(model: OpenVINOModel) -> OpenVINOModel:
    """No beams."""

    def edit(native: Any) -> None:
        for gather in _gathers(native):
            gather.output(0).replace(gather.input_value(0))
        native.remove_parameter(next(node for node in native.get_parameters() if "beam_idx" in _names(node)))

    return _edited(model, edit)


def with_long_beam_index(model: OpenVINOModel) -> OpenVINOModel:
    """``beam_idx`` in i64."""

    def edit(native: Any) -> None:
        beams = next(node for node in native.get_parameters() if "beam_idx" in _names(node))
        beams.set_element_type(_type("i64"))

    return _edited(model, edit)


def with_token_types(model: OpenVINOModel) -> OpenVINOModel:
    """An input without users, as optimum-intel exports it for Gemma 3."""

    def edit(native: Any) -> None:
        types = opset13.parameter([-1, -1], _type("i64"), name="token_type_ids")
        types.output(0).set_names({"token_type_ids"})
        native.add_parameters([types])

    return _edited(model, edit)


def with_slice(model: OpenVINOModel) -> OpenVINOModel:
    """A Slice between Gather and Concat, of all positions."""
    return _between(model, lambda gather: opset8.slice(gather, [0], [1 << 30], [1], [2]))


def with_convert(model: OpenVINOModel) -> OpenVINOModel:
    """The first layers' caches go through f16 and back behind the Gather."""
    return _between(model, lambda gather: opset13.convert(opset13.convert(gather, "f16"), "f32"))


def with_present(model: OpenVINOModel) -> OpenVINOModel:
    """The first variable's new value is an output, too."""

    def edit(native: Any) -> None:
        native.add_results([opset13.result(native.get_sinks()[0].input_value(0), name="present")])

    return _edited(model, edit)


def with_mask_in_logits(model: OpenVINOModel) -> OpenVINOModel:
    """Logits that follow from the mask, too."""

    def edit(native: Any) -> None:
        count = opset13.reduce_sum(opset13.convert(native.input("attention_mask"), "f32"), [0, 1], keep_dims=False)
        (result,) = [one for one in native.get_results() if "logits" in one.output(0).get_names()]
        result.input(0).replace_source_output(opset13.add(result.input_value(0), count).output(0))

    return _edited(model, edit)


def with_axes_written_apart(model: OpenVINOModel) -> OpenVINOModel:
    """The positions' axis counted from the end in every second Concat, from 0 in the others."""

    def edit(native: Any) -> None:
        for place, gather in enumerate(_gathers(native)):
            for port in gather.output(0).get_target_inputs():
                if port.get_node().get_type_name() == "Concat":
                    port.get_node().set_attribute("axis", -2 if place % 2 else 2)

    return _edited(model, edit)


def with_length_of_value(model: OpenVINOModel) -> OpenVINOModel:
    """How long the past is, asked of values where it was asked of keys."""

    def edit(native: Any) -> None:
        caches = {gather.input_value(0).get_node().get_variable_id(): gather for gather in _gathers(native)}
        for name, key in caches.items():
            for port in key.output(0).get_target_inputs():
                if port.get_node().get_type_name() == "ShapeOf" and ".key" in name:
                    port.replace_source_output(caches[name.replace(".key", ".value")].output(0))

    return _edited(model, edit)


def with_length_of_variable(model: OpenVINOModel) -> OpenVINOModel:
    """The past's length is read from variables, as OpenVINO's common transformations write it."""

    def edit(native: Any) -> None:
        for gather in _gathers(native):
            for port in gather.output(0).get_target_inputs():
                if port.get_node().get_type_name() == "ShapeOf":
                    port.replace_source_output(gather.input_value(0))

    return _edited(model, edit)


def with_length_of_value_in_repeats(model: OpenVINOModel) -> OpenVINOModel:
    """How long the past of a value is has a part, of no weight, in the sizes that it is repeated to."""

    def edit(native: Any) -> None:
        for gather in _gathers(native):
            if ".value" in gather.input_value(0).get_node().get_variable_id():
                past = opset13.gather(opset13.shape_of(gather, "i64"), [2], 0)
                repeat = _behind(_behind(_behind(gather, "Concat"), "Unsqueeze"), "Broadcast")
                sizes = repeat.input_value(1)
                nothing = opset13.convert(opset13.subtract(past, past), sizes.get_element_type().to_string())
                repeat.input(1).replace_source_output(opset13.add(sizes, nothing).output(0))

    return _edited(model, edit)


def with_places_laid_out_at_once(model: OpenVINOModel) -> OpenVINOModel:
    """One Unsqueeze of all axes where places in the cache are counted, as PyTorch's ONNX exporter writes it."""

    def edit(native: Any) -> None:
        for counted, last in _places(native):
            axes = [axis for axis, size in enumerate(last.get_output_partial_shape(0)) if size.is_static]
            last.output(0).replace(opset13.unsqueeze(counted, axes).output(0))

    return _edited(model, edit)


def with_places_moved(model: OpenVINOModel) -> OpenVINOModel:
    """Places of queries counted from 0, and the past's length added."""

    def edit(native: Any) -> None:
        for counted, _ in _places(native):
            start, stop, step = counted.input_values()
            if start.get_node().get_type_name() != "Constant":
                counts = opset13.range(0, opset13.subtract(stop, start), step, "i64")
                counted.output(0).replace(opset13.add(counts, start).output(0))

    return _edited(model, edit)


def _behind(node: Any, kind: str) -> Any:
    """What reads ``node``, of a kind."""
    readers = [port.get_node() for port in node.output(0).get_target_inputs()]
    return next(reader for reader in readers if reader.get_type_name() == kind)


def _places(native: Any) -> list[tuple[Any, Any]]:
    """The Ranges that attention masks compare as places in the cache, and the last of their three Unsqueezes."""
    found = []
    for op in native.get_ordered_ops():
        node, layers = op, 0
        while node.get_type_name() == "Unsqueeze":
            node, layers = node.input_value(0).get_node(), layers + 1
        if layers == 3 and node.get_type_name() == "Range":
            found.append((node, op))
    return found


def without_initializer(stateless: OpenVINOModel) -> OpenVINOModel:
    """Stateful, but no variable has an initial value."""
    from openvino._offline_transformations import apply_make_stateful_transformation

    def edit(native: Any) -> None:
        beams = opset13.parameter([-1], _type("i32"), name="beam_idx")
        beams.output(0).set_names({"beam_idx"})
        native.add_parameters([beams])
        pasts = [name for port in native.inputs for name in port.get_names() if name.startswith("past_key_values")]
        for name in pasts:
            past = native.input(name).get_node().output(0)
            readers = list(past.get_target_inputs())
            gather = opset8.gather(past, beams, 0)
            for port in readers:
                port.replace_source_output(gather.output(0))
        native.validate_nodes_and_infer_types()
        names = {name: name.replace("past_key_values", "present") for name in pasts}
        apply_make_stateful_transformation(native, names)

    return _edited(stateless, edit)


def _between(model: OpenVINOModel, make: Callable[[Any], Any]) -> OpenVINOModel:
    def edit(native: Any) -> None:
        for gather in _gathers(native):
            readers = [
                port for port in gather.output(0).get_target_inputs() if port.get_node().get_type_name() == "Concat"
            ]
            node = make(gather)
            for port in readers:
                port.replace_source_output(node.output(0))

    return _edited(model, edit)


def _gathers(native: Any) -> list[Any]:
    """The Gathers by beams."""
    return [
        op
        for op in native.get_ops()
        if op.get_type_name() == "Gather" and op.input_value(0).get_node().get_type_name() == "ReadValue"
    ]


def _names(node: Any) -> set[str]:
    names: set[str] = node.output(0).get_names()
    return names


def _type(name: str) -> Any:
    import openvino

    return getattr(openvino.Type, name)


def _edited(model: OpenVINOModel, edit: Callable[[Any], None]) -> OpenVINOModel:
    mutant = model.clone()
    edit(mutant.ov_model)
    mutant.ov_model.validate_nodes_and_infer_types()
    mutant.mark_edited()
    return mutant
