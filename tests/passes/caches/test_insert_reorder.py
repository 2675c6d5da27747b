"""`insert-reorder`: against edits of the state tensors by hand, and against recomputation."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy
import openvino
import pytest
from support.attention_operator import decoder_with_attention_operator
from support.cache_graphs import TinyDecoder
from support.decode import Decoder, compiled, greedy
from support.loaded import exported, onnx_model, openvino_after, openvino_model
from support.models import fixtures, reference
from support.onnx_request import OnnxRequest
from support.quick_cases import quick_product, quick_subset

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.errors import PreconditionError
from graphpass.ir.cache import Cache
from graphpass.passes.caches.insert_reorder import InsertReorder
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.runtime import open_session

DENSE = ["llama", "gpt2", "qwen3", "qwen3_moe", "gemma3_text", "deepseek_v3"]
HYBRID = ["lfm2", "granitemoehybrid", "qwen3_next"]

#: (src, dst) of moves over a past of 7 positions.
MOVES = [
    ([4], [2]),
    ([6, 5], [1, 2]),
    ([2, 3, 4], [3, 4, 5]),
    ([3, 4, 5], [2, 3, 4]),
    ([1, 5], [5, 1]),
    ([0, 0, 0], [4, 5, 6]),
    (list(range(7)), list(range(6, -1, -1))),
]


def moved(names: list[str]) -> list[Any]:
    """All moves in all these models; quick is each in one of them."""
    cases = [(name, src, dst) for name in names for src, dst in MOVES]
    return quick_subset(cases, lambda name, src, dst: name, lambda name, src, dst: str((src, dst)))


def source(name: str) -> OpenVINOModel:
    return exported(f"{name}/ov-stateful")


def reordered(name: str) -> OpenVINOModel:
    return openvino_after(source(name), InsertReorder())


@functools.cache
def request(name: str, *, with_reorder: bool) -> openvino.InferRequest:
    model = reordered(name) if with_reorder else source(name)
    return compiled(model.ov_model).create_infer_request()


def destinations(decoder: Decoder, slots: list[int], batch: int, axis: int = 2) -> dict[str, numpy.ndarray]:
    """The dst_idx inputs: each element holds its destination slot."""
    feeds = {}
    for name, port in decoder.inputs.items():
        if name.startswith("dst_idx"):
            sizes = [size.get_length() if size.is_static else batch for size in port.get_partial_shape()]
            sizes[axis] = len(slots)
            view = [1] * len(sizes)
            view[axis] = -1
            feeds[name] = numpy.broadcast_to(numpy.array(slots, numpy.int32).reshape(view), sizes).copy()
    return feeds


def step_with_moves(
    decoder: Decoder, ids: numpy.ndarray, src: list[int], dst: list[int], axis: int = 2
) -> numpy.ndarray:
    return decoder.step(ids, src_idx=numpy.array(src, numpy.int32), **destinations(decoder, dst, len(ids), axis))


def move_by_hand(decoder: Decoder, caches: tuple[Cache, ...], src: list[int], dst: list[int]) -> None:
    """What src and dst mean, done on the states outside the graph."""
    for state in decoder.request.query_state():
        cache = next(cache for cache in caches if cache.name == state.name)
        old = state.state.data
        new = old.copy()
        place = [slice(None)] * new.ndim
        place[cache.axes.sequence] = dst
        new[tuple(place)] = old.take(src, cache.axes.sequence)
        state.state = openvino.Tensor(new)


def kv(model: OpenVINOModel) -> tuple[Cache, ...]:
    return graphpass.analyze_caches(model).of_kind("kv")


def prompts(name: str, batch: int) -> numpy.ndarray:
    prompt = [*reference(name)["prompt_ids"], 11, 3]
    return numpy.array([prompt, prompt[::-1]][:batch])


@pytest.mark.parametrize(("name", "batch"), quick_product(DENSE + HYBRID, [1, 2]))
def test_empty_indices_change_nothing(name, batch):
    expected = reference(name)
    found = greedy(request(name, with_reorder=True), [expected["prompt_ids"]] * batch, 12)
    assert found == [expected["greedy_ids"]] * batch


class TestMoves:
    @pytest.mark.parametrize(("name", "src", "dst"), moved(["llama", "gemma3_text", "deepseek_v3"]), ids=str)
    def test_moves_equal_manual_edits_of_states(self, name, src, dst):
        for batch in (1, 2):
            with_pass, by_hand = (Decoder(request(name, with_reorder=one)) for one in (True, False))
            for decoder in (with_pass, by_hand):
                decoder.step(prompts(name, batch))
            move_by_hand(by_hand, kv(source(name)), src, dst)
            token = numpy.array([[9], [4]][:batch])
            numpy.testing.assert_allclose(step_with_moves(with_pass, token, src, dst), by_hand.step(token), atol=2e-5)
            numpy.testing.assert_allclose(with_pass.step(token), by_hand.step(token), atol=2e-5)  # and they persist

    def test_moves_change_the_logits(self):
        moved, still = (Decoder(request("llama", with_reorder=True)) for _ in range(2))
        first = [moved.step(prompts("llama", 1)), step_with_moves(moved, numpy.array([[9]]), [6, 5], [1, 2])][1]
        second = [still.step(prompts("llama", 1)), still.step(numpy.array([[9]]))][1]
        assert not numpy.allclose(first, second, atol=1e-4)

    @pytest.mark.parametrize(
        "decoder", [TinyDecoder(layout=layout) for layout in ("BLHD", "LBHD", "HBLD", "BHDL")], ids=str
    )
    def test_moves_along_any_sequence_axis(self, decoder):
        stateful = PassManager([MakeStateful()]).run(decoder.build()).model
        model = PassManager([InsertReorder()]).run(stateful).model
        batch_axis, axis = decoder.layout.index("B"), decoder.layout.index("L")
        with_pass = Decoder(compiled(model.ov_model).create_infer_request(), batch_axis=batch_axis)
        by_hand = Decoder(compiled(stateful.ov_model).create_infer_request())
        ids = numpy.array([[1, 5, 9, 2, 7], [3, 3, 8, 1, 4]])
        for one in (with_pass, by_hand):
            one.step(ids)
        move_by_hand(by_hand, kv(stateful), [3, 4], [1, 2])
        token = numpy.array([[6], [7]])
        found = step_with_moves(with_pass, token, [3, 4], [1, 2], axis)
        numpy.testing.assert_allclose(found, by_hand.step(token), atol=2e-5)


class TestTrim:
    @pytest.mark.parametrize("name", DENSE)
    @pytest.mark.parametrize("batch", [1, 2])
    def test_a_shorter_mask_equals_recomputation(self, name, batch):
        ids = prompts(name, batch)
        trimmed, fresh = (Decoder(request(name, with_reorder=one)) for one in (True, False))
        trimmed.step(ids)
        trimmed.step(numpy.array([[9], [4]][:batch]))
        trimmed.mask = trimmed.mask[:, :5]
        fresh.step(ids[:, :5])
        for token in ([[8], [2]], [[30], [31]]):
            ids = numpy.array(token[:batch])
            numpy.testing.assert_allclose(trimmed.step(ids), fresh.step(ids), atol=2e-5)

    @pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3"])
    def test_accepting_a_branch_of_a_tree_in_one_step(self, name):
        """Slots 5 and 6 hold two branches of a draft; the second is accepted: it moves to 5, and 6 is cut off."""
        expected = reference(name)
        prompt, (accepted, following, *_) = expected["prompt_ids"], expected["greedy_ids"]
        rejected = (accepted + 1) % 320
        tree = Decoder(request(name, with_reorder=True))
        tree.step(numpy.array([prompt]))
        tree.step(numpy.array([[rejected]]))
        # The branches do not see one another, and both stand on position 5.
        tree.mask = numpy.array([[1] * 5 + [0]])
        assert int(tree.step(numpy.array([[accepted]])).argmax()) == following
        tree.mask = numpy.array([[1] * 6])
        continued = step_with_moves(tree, numpy.array([[following]]), [6], [5])
        assert int(continued.argmax()) == expected["greedy_ids"][2]

    def test_to_nothing_is_a_reset(self):
        expected = reference("llama")
        decoder = Decoder(request("llama", with_reorder=True))
        decoder.step(numpy.array([[5, 6, 7]]))
        decoder.mask = decoder.mask[:, :0]
        assert int(decoder.step(numpy.array([expected["prompt_ids"]])).argmax()) == expected["greedy_ids"][0]


class TestStructure:
    @pytest.mark.parametrize("name", [*DENSE, *HYBRID])
    def test_caches_have_the_pattern_of_the_gpu_plugin(self, name):
        native = reordered(name).ov_model
        names = {cache.name for cache in kv(source(name))}
        reads = [op for op in native.get_ops() if op.get_type_name() == "ReadValue" and op.get_variable_id() in names]
        assert len(reads) == len(names)
        for read in reads:
            # The beam Gather, which the model has no more, reads the state as long as something refers to it.
            readers = {op.get_type_name(): op for op in native.get_ops() if read.output(0) in op.input_values()}
            assert set(readers) == {"Gather", "ScatterElementsUpdate"}
            gather, update = readers["Gather"], readers["ScatterElementsUpdate"]
            assert gather.get_type_info().version_id == "opset8"
            assert "src_idx" in gather.input_value(1).get_names()
            assert update.get_type_info().version_id == "opset3"
            destination = update.input_value(1).get_node()
            assert (destination.get_type_name(), destination.get_output_element_type(0).to_string()) == (
                "Parameter",
                "i32",
            )
            assert update.input_value(2).get_node().get_friendly_name() == gather.get_friendly_name()
            (reader,) = update.output(0).get_target_inputs()
            trim = reader.get_node()
            assert (trim.get_type_name(), trim.get_type_info().version_id) == ("Slice", "opset8")
            start, step, axes = (trim.input_value(port).get_node() for port in (1, 3, 4))
            assert [list(node.data) for node in (start, step, axes)] == [[0], [1], [2]]
            assert str(trim.input_value(2).get_partial_shape()) == "[1]"
            concats = [reader.get_node() for reader in trim.output(0).get_target_inputs()]
            concat = next(node for node in concats if node.get_type_name() == "Concat")
            assert {node.get_type_name() for node in concats} <= {"Concat", "ShapeOf"}
            assert "Assign" in {reader.get_node().get_type_name() for reader in concat.output(0).get_target_inputs()}

    @pytest.mark.parametrize("name", DENSE)
    def test_inputs(self, name):
        ports = {port.name: port for port in reordered(name).inputs}
        assert "beam_idx" not in ports
        assert (ports["src_idx"].shape, ports["src_idx"].element_type) == ((None,), "i32")
        assert ports["dst_idx"].element_type == "i32"

    def test_caches_of_two_sizes_have_an_input_each(self):
        shapes = {port.name: port.shape for port in reordered("deepseek_v3").inputs if port.name.startswith("dst_idx")}
        assert shapes == {"dst_idx": (None, 4, None, 24), "dst_idx_4x16": (None, 4, None, 16)}

    def test_caches_of_three_orders_have_an_input_each(self):
        one, other = TinyDecoder(layers=1, layout="BHLD", value_layout="BLHD"), TinyDecoder(layers=1, layout="BHDL")
        model = PassManager([MakeStateful(), InsertReorder()]).run(both(one, other)).model
        shapes = {port.name: port.shape for port in model.inputs if port.name.startswith("dst_idx")}
        assert sorted(shapes.values(), key=str) == sorted(
            [(None, 3, None, 4), (None, None, 3, 4), (None, 3, 4, None)], key=str
        )

    @pytest.mark.parametrize("name", HYBRID)
    def test_linear_caches_are_unchanged(self, name):
        before, after = source(name), reordered(name)
        linear = graphpass.analyze_caches(before).of_kind("linear")
        assert graphpass.analyze_caches(after).of_kind("linear") == linear
        assert "beam_idx" in {port.name for port in after.inputs}
        for read in (op for op in after.ov_model.get_ops() if op.get_type_name() == "ReadValue"):
            if read.get_variable_id() in {cache.name for cache in linear}:
                (reader,) = [
                    one.get_node()
                    for one in read.output(0).get_target_inputs()
                    if one.get_node().get_type_name() != "ShapeOf"
                ]
                assert "beam_idx" in reader.input_value(1).get_names()

    @pytest.mark.parametrize("name", ["llama", "lfm2", "deepseek_v3"])
    def test_the_inventory_stays(self, name):
        before, after = (graphpass.analyze_caches(model).caches for model in (source(name), reordered(name)))
        assert [(c.name, c.kind, c.role, c.layer, c.axes) for c in after] == [
            (c.name, c.kind, c.role, c.layer, c.axes) for c in before
        ]

    def test_a_converted_cache_is_reordered_after_its_convert(self):
        """The plugin takes ``Convert(ReadValue)`` for the state, and no Convert further on."""
        model = (
            PassManager([MakeStateful(), InsertReorder()]).run(TinyDecoder(cache_type=openvino.Type.f16).build()).model
        )
        updates = [op for op in model.ov_model.get_ops() if op.get_type_name() == "ScatterElementsUpdate"]
        assert len(updates) == 4
        for update in updates:
            convert = update.input_value(0).get_node()
            assert (convert.get_type_name(), convert.input_value(0).get_node().get_type_name()) == (
                "Convert",
                "ReadValue",
            )
            trim = next(iter(update.output(0).get_target_inputs())).get_node()
            assert [reader.get_node().get_type_name() for reader in trim.output(0).get_target_inputs()] == ["Concat"]
        assert "beam_idx" not in {port.name for port in model.inputs}

    def test_shapes_of_a_cache_are_read_after_the_cut(self):
        """A ShapeOf on the ReadValue itself would see positions that are cut off."""
        native = PassManager([MakeStateful(beam_index=False)]).run(TinyDecoder(reads_length=True).build()).model
        model = PassManager([InsertReorder()]).run(native).model
        decoder = Decoder(compiled(model.ov_model).create_infer_request())
        fresh = Decoder(compiled(native.ov_model).create_infer_request())
        decoder.step(numpy.array([[1, 5, 9, 2, 7]]))
        decoder.mask = decoder.mask[:, :3]
        fresh.step(numpy.array([[1, 5, 9]]))
        numpy.testing.assert_allclose(decoder.step(numpy.array([[6]])), fresh.step(numpy.array([[6]])), atol=2e-5)

    def test_output_is_deterministic(self, tmp_path):
        for name in ("one", "two"):
            graphpass.save(PassManager([InsertReorder()]).run(openvino_model("lfm2")).model, tmp_path / f"{name}.xml")
        assert (tmp_path / "one.xml").read_bytes() == (tmp_path / "two.xml").read_bytes()


class TestCompact:
    """``dst_idx`` [n], for runtimes that look for no form; beams stay."""

    @staticmethod
    def compacted(name: str) -> OpenVINOModel:
        return openvino_after(source(name), InsertReorder("compact"))

    def decoder(self, name):
        return Decoder(compiled(self.compacted(name).ov_model).create_infer_request())

    @pytest.mark.parametrize("name", ["gpt2", "gemma3_text", "deepseek_v3", "lfm2"])
    def test_empty_indices_change_nothing(self, name):
        expected = reference(name)
        found = greedy(compiled(self.compacted(name).ov_model).create_infer_request(), [expected["prompt_ids"]] * 2, 12)
        assert found == [expected["greedy_ids"]] * 2

    @pytest.mark.parametrize(("name", "src", "dst"), moved(["llama", "deepseek_v3"]), ids=str)
    def test_moves_equal_manual_edits_of_states(self, name, src, dst):
        with_pass, by_hand = self.decoder(name), Decoder(request(name, with_reorder=False))
        for decoder in (with_pass, by_hand):
            decoder.step(prompts(name, 2))
        move_by_hand(by_hand, kv(source(name)), src, dst)
        token, moves = numpy.array([[9], [4]]), compact_moves(src, dst)
        numpy.testing.assert_allclose(with_pass.step(token, **moves), by_hand.step(token), atol=2e-5)
        numpy.testing.assert_allclose(with_pass.step(token), by_hand.step(token), atol=2e-5)

    def test_moves_and_a_cut_and_beams_in_one_step(self):
        with_pass, by_hand = self.decoder("llama"), Decoder(request("llama", with_reorder=False))
        for decoder in (with_pass, by_hand):
            decoder.step(prompts("llama", 2))
        with_pass.mask = with_pass.mask[:, :5]
        found = with_pass.step(numpy.array([[9], [4]]), beams=[1, 0], **compact_moves([6, 5], [3, 4]))
        move_by_hand(by_hand, kv(source("llama")), [6, 5], [3, 4])
        for state in by_hand.request.query_state():
            state.state = openvino.Tensor(state.state.data[:, :, :5].copy())
        by_hand.mask = by_hand.mask[:, :5]
        numpy.testing.assert_allclose(found, by_hand.step(numpy.array([[9], [4]]), beams=[1, 0]), atol=2e-5)

    @pytest.mark.parametrize("name", ["llama", "lfm2", "deepseek_v3"])
    def test_the_inventory_stays(self, name):
        before, after = (graphpass.analyze_caches(model).caches for model in (source(name), self.compacted(name)))
        assert [(c.name, c.kind, c.role, c.layer, c.axes) for c in after] == [
            (c.name, c.kind, c.role, c.layer, c.axes) for c in before
        ]

    def test_sessions_feed_empty_indices(self):
        expected = reference("llama")
        session = open_session(self.compacted("llama"))
        assert session.prefill(expected["prompt_ids"])[0, -1].argmax() == expected["greedy_ids"][0]


def compact_moves(src: list[int], dst: list[int]) -> dict[str, numpy.ndarray]:
    return {"src_idx": numpy.array(src, numpy.int32), "dst_idx": numpy.array(dst, numpy.int32)}


#: The target ort goes through all.
ONNX = [("llama", "onnx"), ("gemma3_text", "onnx"), ("bloom", "onnx"), ("lfm2", "onnx-genai"), ("qwen3", "onnx-genai")]


@functools.cache
def onnx_reordered(name: str, variant: str) -> OnnxModel:
    model = PassManager([InsertReorder("onnx")]).run(onnx_model(name, variant)).model
    assert isinstance(model, OnnxModel)
    return model


class TestOnnx:
    @pytest.mark.parametrize(("name", "variant"), ONNX)
    def test_empty_indices_change_nothing(self, name, variant):
        expected = reference(name)
        model = onnx_reordered(name, variant)
        model.validate()
        session = open_session(model)
        tokens = [int(session.prefill(expected["prompt_ids"])[0, -1].argmax())]
        while len(tokens) < len(expected["greedy_ids"]):
            tokens.append(int(session.step(tokens[-1:])[0, -1].argmax()))
        assert tokens == expected["greedy_ids"]

    @pytest.mark.parametrize(("name", "src", "dst"), moved(["llama", "deepseek_v3"]), ids=str)
    def test_moves_equal_manual_edits_of_pasts(self, name, src, dst):
        with_pass, by_hand = (Decoder(OnnxRequest(make(name, "onnx"))) for make in (onnx_reordered, onnx_model))
        for decoder in (with_pass, by_hand):
            decoder.step(prompts(name, 2))
        for past, array in by_hand.pasts.items():
            by_hand.pasts[past] = array.copy()
            by_hand.pasts[past][:, :, dst] = array[:, :, src]
        token = numpy.array([[9], [4]])
        found = with_pass.step(token, **compact_moves(src, dst))
        numpy.testing.assert_allclose(found, by_hand.step(token), atol=2e-5)

    @pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("gemma3_text", "onnx"), ("lfm2", "onnx-genai")])
    def test_the_inventory_stays(self, name, variant):
        models = onnx_model(name, variant), onnx_reordered(name, variant)
        before, after = (graphpass.analyze_caches(model) for model in models)
        assert (after.kind, after.unpaired_inputs) == (before.kind, before.unpaired_inputs)
        assert [(c.name, c.kind, c.role, c.layer, c.axes) for c in after.caches] == [
            (c.name, c.kind, c.role, c.layer, c.axes) for c in before.caches
        ]

    def test_a_shorter_mask_equals_recomputation(self):
        ids = prompts("qwen3", 2)
        cut, fresh = (Decoder(OnnxRequest(onnx_reordered("qwen3", "onnx"))) for _ in range(2))
        cut.step(ids)
        cut.mask = cut.mask[:, :5]
        fresh.step(ids[:, :5])
        for token in ([[8], [2]], [[30], [31]]):
            numpy.testing.assert_allclose(cut.step(numpy.array(token)), fresh.step(numpy.array(token)), atol=2e-5)

    def test_inputs(self):
        ports = {port.name: (port.shape, port.element_type) for port in onnx_reordered("llama", "onnx").inputs}
        assert ports["src_idx"] == ports["dst_idx"] == (("moved",), "i32")

    def test_the_onnx_form_becomes_the_form_of_openvino(self):
        """The same graph, converted and made stateful, still decodes."""
        expected = reference("llama")
        model = PassManager(graphpass.parse("to-openvino,make-stateful")).run(onnx_reordered("llama", "onnx")).model
        found = greedy(compiled(model.ov_model).create_infer_request(), [expected["prompt_ids"]], 12)
        assert found == [expected["greedy_ids"]]


class TestPastLength:
    """A model whose inputs do not tell how long the past is gets an input for that."""

    PIPELINES: ClassVar = {
        "gpu": "to-openvino,make-stateful,insert-reorder",
        "compact": "to-openvino,make-stateful,insert-reorder{form=compact}",
        "onnx": "insert-reorder{form=onnx}",
    }

    @pytest.mark.parametrize("form", PIPELINES)
    def test_a_shorter_past_equals_recomputation(self, form):
        model = PassManager(graphpass.parse(self.PIPELINES[form])).run(decoder_with_attention_operator("none")).model
        ports = {port.name: port for port in model.inputs}
        assert (ports["past_len"].shape, ports["past_len"].element_type) == ((1,), "i64")
        ids = numpy.array([[5, 9, 2, 7]])
        cut, fresh, whole = (Decoder(self.request(model)) for _ in range(3))
        for decoder in (cut, whole):
            decoder.step(ids)
        fresh.step(ids[:, :2])
        step = {"position_ids": numpy.array([[2]])}
        found = cut.step(numpy.array([[11]]), past_len=numpy.array([2]), **step)
        numpy.testing.assert_allclose(found, fresh.step(numpy.array([[11]]), **step), atol=2e-5)
        # A number beyond the end keeps all.
        beyond = whole.step(numpy.array([[11]]), past_len=numpy.array([2**62]), **step)
        assert abs(beyond - found).max() > 1e-3

    def request(self, model):
        return OnnxRequest(model) if isinstance(model, OnnxModel) else compiled(model.ov_model).create_infer_request()

    def test_sessions_feed_reorder_inputs(self):
        plain = decoder_with_attention_operator("none")
        model = PassManager([InsertReorder("onnx")]).run(plain).model
        logits = []
        for session in (open_session(plain), open_session(model)):
            session.prefill([[5, 9, 2]])
            logits.append(session.step([[4]]))
        numpy.testing.assert_allclose(*logits, atol=1e-6)


def both(first: TinyDecoder, second: TinyDecoder) -> OpenVINOModel:
    """Two decoders side by side in one model, reading the same inputs."""
    second.names = ("past_key_values.1{layer}.{role}", "present.1{layer}.{role}")
    one, other = first.build().ov_model, second.build().ov_model
    for name in ("input_ids", "attention_mask"):
        old, new = (next(port for port in native.inputs if name in port.get_names()) for native in (other, one))
        for reader in old.get_target_inputs():
            reader.replace_source_output(new)
    for port in other.outputs:
        if "logits" in port.get_names():
            port.set_names({"other_logits"})
            port.get_node().set_friendly_name("other_logits")
    parameters = [node for node in other.get_parameters() if node.get_friendly_name().startswith("past")]
    return OpenVINOModel(
        openvino.Model([*one.get_results(), *other.get_results()], [*one.get_parameters(), *parameters], "both")
    )


class TestRefusals:
    def refuse(self, model, error, number, form="gpu"):
        before = model.digest()
        with pytest.raises(error) as caught:
            PassManager([InsertReorder(form)]).run(model)
        assert (caught.value.id, caught.value.exit_code) == (number, 4)
        assert model.digest() == before

    def test_a_second_run_is_refused(self):
        self.refuse(reordered("llama"), PreconditionError, "GP319")

    def test_a_stateless_model_is_refused(self):
        self.refuse(openvino_model("llama", "ov-stateless"), PreconditionError, "GP302")

    @pytest.mark.parametrize(("form", "variant"), [("onnx", "ov-stateful"), ("gpu", "onnx"), ("compact", "onnx")])
    def test_the_other_format_is_refused(self, form, variant):
        self.refuse(graphpass.load(fixtures() / "llama" / variant), PreconditionError, "GP301", form=form)

    def test_a_second_run_on_onnx_is_refused(self):
        self.refuse(onnx_reordered("llama", "onnx"), PreconditionError, "GP319", form="onnx")

    def test_a_model_without_kv_caches_is_skipped(self):
        result = PassManager([InsertReorder()]).run(openvino_model("mamba"))
        assert isinstance(result.records[0].result, Skipped)
        assert "linear" in result.records[0].result.reason
        assert not result.changed
