"""The inventory of real exports against a table checked by hand, under other names and in other orders."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy
import onnx
import openvino
import pytest
from openvino import opset13 as ops
from support.cache_graphs import HEAD_DIM, HEADS, Renaming, TinyDecoder, renamed, shuffled
from support.loaded import exported, openvino_model
from support.models import export, fixtures
from support.quick_cases import quick_subset

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import Axes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)
FIXED = Axes(batch=0)

#: The table, which says what its entries mean.
GOLDEN = tomllib.loads((Path(__file__).parents[2] / "golden" / "caches.toml").read_text(encoding="utf-8"))
OTHERS = GOLDEN.pop("others")

ROLES = {
    "a": ("key", "value"),
    "c": ("conv",),
    "m": ("conv", "recurrent"),
    "x": ("key", "value", "cross_key", "cross_value"),
}

DECODERS = [f"{name}/{export}" for name, entry in GOLDEN.items() for export in entry["exports"]]
WITHOUT_CACHES, FILLS_ONLY, ELSEWHERE = (OTHERS[key] for key in ("without-caches", "fills-only", "elsewhere"))


def model(path: str) -> graphpass.Model:
    return exported(path)


def shape_of(cache: graphpass.Cache) -> tuple[int | None, ...]:
    """The shape without symbols."""
    assert cache.shape is not None
    return tuple(size if isinstance(size, int) else None for size in cache.shape)


def expected_table(path: str) -> list[tuple]:
    """Rows of (name, kind, role, layer, axes, shape, write) in the inventory's order."""
    name, variant = path.split("/")[:2]
    rows, counts = [], dict.fromkeys(("key", "value", "conv", "recurrent"), 0)
    for layer, letter in enumerate(GOLDEN[name]["layers"]):
        for role in ROLES[letter]:
            kind = "linear" if role in {"conv", "recurrent"} else "cross" if role.startswith("cross") else "kv"
            past, present = ports(name, variant, role, layer, counts)
            counts[role] = counts.get(role, 0) + 1
            sizes = GOLDEN[name]["sizes"][role]
            if variant == "onnx-genai" and role == "conv":
                sizes = (64, 2)
            shape = (None, *sizes) if kind == "linear" else (None, sizes[0], None, sizes[1])
            rows.append((past, kind, role, layer, FIXED if kind == "linear" else KV, shape, present))
    return rows


def ports(name: str, variant: str, role: str, layer: int, counts: dict[str, int]) -> tuple[str, str | None]:
    """How the exporter calls a cache: (past, present), or (variable id, None)."""
    word = {"recurrent": "ssm"}.get(role, role)
    if role.startswith("cross"):
        key_or_value = role.removeprefix("cross_")
        if variant == "ov-stateful":
            return GOLDEN[name]["ids"][layer][key_or_value == "value"], None
        return f"past_key_values.{layer}.encoder.{key_or_value}", None
    if name in {"t5", "whisper"}:
        past, present = f"past_key_values.{layer}.decoder.{role}", f"present.{layer}.decoder.{role}"
    elif set(GOLDEN[name]["layers"]) & {"c", "m"} and variant != "onnx-genai":
        past, present = f"cache_params.past.{word}.{counts[role]}", f"cache_params.present.{word}.{counts[role]}"
    elif role == "conv":
        past, present = f"past.{layer}.conv", f"present.{layer}.conv"
    else:
        past, present = f"past_key_values.{layer}.{role}", f"present.{layer}.{role}"
    return (past + present, None) if "stateful" in variant else (past, present)


def table(inventory: graphpass.Inventory) -> list[tuple]:
    return [
        (
            cache.name,
            cache.kind,
            cache.role,
            cache.layer,
            cache.axes,
            shape_of(cache),
            None if inventory.stateful else cache.write,
        )
        for cache in inventory.caches
    ]


class TestRealExports:
    def test_the_tables_name_every_model_of_the_fixtures(self):
        files = {
            file.relative_to(fixtures()).as_posix()
            for file in fixtures().glob("*/*/*")
            if file.suffix in {".onnx", ".xml"} and "tokenizer" not in file.name
        }
        named = {graphpass.model_files.find_model(fixtures() / path).relative_to(fixtures()).as_posix() for path in
                 (*DECODERS, *WITHOUT_CACHES, *FILLS_ONLY, *ELSEWHERE)}  # fmt: skip
        assert named == files

    @pytest.mark.parametrize("path", DECODERS)
    def test_every_cache_has_its_kind_and_axes(self, path):
        inventory = graphpass.analyze_caches(model(path))
        assert table(inventory) == expected_table(path)
        assert inventory.kind == GOLDEN[path.split("/")[0]]["kind"]
        assert inventory.stateful == ("stateful" in path)
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    @pytest.mark.parametrize("path", DECODERS)
    def test_types_and_attention(self, path):
        inventory = graphpass.analyze_caches(model(path))
        half = path == "llama/onnx-fp16"
        assert {cache.element_type for cache in inventory.caches} == {"f16" if half else "f32"}
        read = {name for block in inventory.attention for name in (block.key, block.value)}
        assert read == {cache.name for cache in inventory.of_kind("kv", "cross")}
        assert all(cache.evidence for cache in inventory.caches)

    @pytest.mark.parametrize("path", WITHOUT_CACHES)
    def test_models_without_caches_have_none(self, path):
        inventory = graphpass.analyze_caches(model(path))
        assert inventory.kind == "none"
        assert not inventory.caches
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    @pytest.mark.parametrize("path", FILLS_ONLY)
    def test_a_prefill_decoder_has_presents_without_pasts(self, path):
        inventory = graphpass.analyze_caches(model(path))
        assert not inventory.caches
        presents = {
            f"present.{layer}.{side}.{role}"
            for layer in (0, 1)
            for side in ("decoder", "encoder")
            for role in ("key", "value")
        }
        assert set(inventory.unpaired_outputs) == presents


class TestNamesAndOrderSayNothing:
    @pytest.mark.parametrize(
        "path", quick_subset(DECODERS, lambda path: path.split("/")[0], lambda path: path.split("/")[1])
    )
    def test_names_and_order_of_nodes_do_not_matter(self, path):
        before = model(path)
        rename = Renaming(seed=len(path))
        after = shuffled(renamed(before, rename), seed=3)
        found, wanted = (graphpass.analyze_caches(one) for one in (after, before))
        assert set(found.caches) == {anonymous(cache, rename, found) for cache in wanted.caches}
        assert [cache.layer for cache in found.caches] == [cache.layer for cache in wanted.caches]
        assert [block.key for block in found.attention] == [rename.names.get(block.key) for block in wanted.attention]

    @pytest.mark.parametrize("path", FILLS_ONLY)
    def test_unpaired_outputs_under_random_names(self, path):
        before = model(path)
        rename = Renaming(seed=1)
        found = graphpass.analyze_caches(shuffled(renamed(before, rename), seed=3))
        assert set(found.unpaired_outputs) == {
            rename(name) for name in graphpass.analyze_caches(before).unpaired_outputs
        }


def anonymous(cache: graphpass.Cache, rename: Renaming, found: graphpass.Inventory) -> graphpass.Cache:
    """``cache`` as it is called after ``rename``; evidence and symbols are taken over from what was found."""
    twin = found.cache(rename(cache.name))
    assert shape_of(twin) == shape_of(cache)
    write = rename(cache.write) if cache.write is not None else None
    changes = {
        "name": twin.name,
        "read": rename(cache.read),
        "write": write,
        "shape": twin.shape,
        "evidence": twin.evidence,
    }
    return graphpass.Cache(**({field: getattr(cache, field) for field in cache.__dataclass_fields__} | changes))


class TestLayouts:
    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("layout", ["BHLD", "BLHD", "LBHD", "HBLD", "BHDL", "DLHB"])
    def test_axes_follow_from_the_dataflow(self, layout, fused):
        inventory = graphpass.analyze_caches(TinyDecoder(layout=layout, fused=fused).build())
        axes = Axes(*(layout.index(letter) for letter in "BHLD"))
        assert [(cache.role, cache.layer, cache.axes) for cache in inventory.caches] == [
            (role, layer, axes) for layer in (0, 1) for role in ("key", "value")
        ]

    def test_key_and_value_may_differ(self):
        inventory = graphpass.analyze_caches(TinyDecoder(layout="BHLD", value_layout="BHDL").build())
        assert {cache.role: cache.axes.sequence for cache in inventory.caches} == {"key": 2, "value": 3}

    @pytest.mark.parametrize("options", [{"softcap": True}, {"sink": True}, {"softcap": True, "layout": "BLHD"}])
    def test_caches_of_unusual_attention(self, options):
        decoder = TinyDecoder(fused=False, **options)
        inventory = graphpass.analyze_caches(decoder.build())
        axes = Axes(*(decoder.layout.index(letter) for letter in "BHLD"))
        assert [(cache.role, cache.layer, cache.axes) for cache in inventory.caches] == [
            (role, layer, axes) for layer in (0, 1) for role in ("key", "value")
        ]
        assert not any(block.fusable for block in inventory.attention)

    @pytest.mark.parametrize("options", [{"cache_type": openvino.Type.f16}, {"batch": 2}, {"reads_length": True}])
    def test_type_batch_and_other_readers_do_not_matter(self, options):
        inventory = graphpass.analyze_caches(TinyDecoder(**options).build())
        assert [cache.kind for cache in inventory.caches] == ["kv"] * 4

    @pytest.mark.parametrize("name", ["llama", "lfm2", "granitemoehybrid", "mamba"])
    def test_a_static_batch_does_not_matter(self, name):
        from support.loaded import reshaped

        before = openvino_model(name, "ov-stateless")
        found, wanted = (graphpass.analyze_caches(one).caches for one in (reshaped(before, 1), before))
        assert [(c.name, c.kind, c.role, c.layer, c.axes) for c in found] == [
            (c.name, c.kind, c.role, c.layer, c.axes) for c in wanted
        ]

    def test_a_static_sequence_does_not_matter(self):
        """NPU-style: past of 7, one new token, present of 8."""
        native = openvino_model("llama", "ov-stateless").clone().ov_model
        sizes = {"input_ids": [1, 1], "position_ids": [1, 1], "attention_mask": [1, 8]}
        native.reshape({port.get_any_name(): sizes.get(port.get_any_name(), [1, 2, 7, 16]) for port in native.inputs})
        inventory = graphpass.analyze_caches(OpenVINOModel(native))
        assert [(cache.kind, cache.role, cache.layer, cache.write) for cache in inventory.caches] == [
            ("kv", role, layer, f"present.{layer}.{role}") for layer in (0, 1) for role in ("key", "value")
        ]


class TestHalfPairs:
    @pytest.mark.parametrize("name", ["past_key_values.1.key", "past_key_values.0.value"])
    def test_a_missing_present(self, name):
        broken = openvino_model("llama", "ov-stateless").clone()
        native = broken.ov_model
        present = name.replace("past_key_values", "present")
        native.remove_result(next(port.get_node() for port in native.outputs if present in port.get_names()))
        assert graphpass.analyze_caches(broken).unpaired_inputs == (name,)

    @pytest.mark.parametrize("name", ["past_key_values.1.key", "past_key_values.0.value"])
    def test_a_constant_past(self, name):
        broken = openvino_model("llama", "ov-stateless").clone()
        freeze(broken.ov_model, name)
        inventory = graphpass.analyze_caches(broken)
        assert inventory.unpaired_outputs == (name.replace("past_key_values", "present"),)
        assert len(inventory.caches) == 3

    @pytest.mark.parametrize(
        ("path", "name"), [("lfm2", "cache_params.past.conv.1"), ("granitemoehybrid", "cache_params.past.ssm.0")]
    )
    def test_a_linear_cache_without_present(self, path, name):
        broken = openvino_model(path, "ov-stateless").clone()
        native = broken.ov_model
        present = name.replace("past", "present")
        native.remove_result(next(port.get_node() for port in native.outputs if present in port.get_names()))
        assert graphpass.analyze_caches(broken).unpaired_inputs == (name,)

    @pytest.mark.parametrize("variant", ["onnx", "onnx-genai"])
    def test_an_unpaired_past_is_reported(self, variant):
        broken = graphpass.load(export("llama", variant)).clone()
        outputs = broken.proto.graph.output
        outputs.remove(next(info for info in outputs if info.name == "present.1.value"))
        assert graphpass.analyze_caches(broken).unpaired_inputs == ("past_key_values.1.value",)


def freeze(native: openvino.Model, name: str) -> None:
    """An input becomes a constant of length 3."""
    parameter = next(port.get_node() for port in native.inputs if name in port.get_names())
    shape = [
        3 if axis == 2 else 1 if size.is_dynamic else size.get_length()
        for axis, size in enumerate(parameter.get_partial_shape())
    ]
    constant = ops.constant(numpy.zeros(shape, numpy.float32))
    for reader in parameter.output(0).get_target_inputs():
        reader.replace_source_output(constant.output(0))
    native.remove_parameter(parameter)
    native.validate_nodes_and_infer_types()


class TestNotCaches:
    @pytest.mark.parametrize("length", [-1, 1])
    @pytest.mark.parametrize("name", ["llama", "lfm2"])
    def test_embeddings_and_hidden_states_are_not_caches(self, name, length):
        """A residual stream leads from the one to the other, of equal shape, past all weights."""
        copy = openvino_model(name, "ov-stateless").clone()
        native = copy.ov_model
        before = graphpass.analyze_caches(copy)
        embeddings = ops.parameter(openvino.PartialShape([-1, length, 64]), openvino.Type.f32)
        embeddings.set_friendly_name("inputs_embeds")
        lookup = next(
            op
            for op in native.get_ordered_ops()
            if op.get_type_name() == "Gather" and str(op.get_output_partial_shape(0)) == "[?,?,64]"
        )
        for reader in lookup.output(0).get_target_inputs():
            reader.replace_source_output(embeddings.output(0))
        head = (
            next(port.get_node() for port in native.outputs if "logits" in port.get_names()).input_value(0).get_node()
        )
        while head.get_type_name() != "MatMul":
            head = head.input_value(0).get_node()
        native.add_parameters([embeddings])
        native.add_results([ops.result(head.input_value(0))])
        native.validate_nodes_and_infer_types()
        copy.mark_edited()
        after = graphpass.analyze_caches(copy)
        assert [cache.name for cache in after.caches] == [cache.name for cache in before.caches]
        assert (after.unpaired_inputs, after.unpaired_outputs) == ((), ())

    @pytest.mark.parametrize("length", [-1, 1])
    def test_a_residual_input_that_is_added(self, length):
        decoder = TinyDecoder()
        native = decoder.build().ov_model
        residual = ops.parameter(openvino.PartialShape([-1, length, 12]), openvino.Type.f32)
        residual.set_friendly_name("residual")
        total = ops.add(ops.relu(residual), decoder._hidden)
        native.add_parameters([residual])
        native.add_results([ops.result(total)])
        inventory = graphpass.analyze_caches(OpenVINOModel(native))
        assert [cache.kind for cache in inventory.caches] == ["kv"] * 4
        assert not inventory.unpaired_inputs

    def test_a_mask_of_rank_4_beside_the_probabilities(self):
        """A float mask as input and attention probabilities as output, of equal shape for one head."""
        mask, query, key, value = (
            ops.parameter(openvino.PartialShape([-1, 1, -1, last]), openvino.Type.f32) for last in (-1, 4, 4, 4)
        )
        seen = ops.softmax(ops.add(ops.matmul(query, key, False, True), mask), -1)
        native = openvino.Model(
            [ops.result(seen), ops.result(ops.matmul(seen, value, False, False))], [mask, query, key, value], ""
        )
        assert not [cache for cache in graphpass.analyze_caches(OpenVINOModel(native)).caches if cache.kind != "cross"]

    def test_a_model_of_products_has_no_caches(self):
        x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["B", 4, 8])
        y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["B", 4, 8])
        weight = onnx.numpy_helper.from_array(numpy.ones((8, 8), numpy.float32), "w")
        graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
        assert not graphpass.analyze_caches(OnnxModel(onnx.helper.make_model(graph))).caches


def test_time_grows_with_the_nodes(capsys):
    lines = []
    for layers in (10, 20, 40, 80):
        decoder = TinyDecoder(layers=layers, fused=False).build()
        start = time.perf_counter()
        inventory = graphpass.analyze_caches(decoder)
        lines.append(f"{layers} layers, {len(decoder.graph.nodes)} nodes: {time.perf_counter() - start:.2f} s")
        assert [cache.layer for cache in inventory.caches] == [layer for layer in range(layers) for _ in (0, 1)]
        assert [cache.read for cache in inventory.caches[::2]] == [
            f"past_key_values.{layer}.key" for layer in range(layers)
        ]
    with capsys.disabled():
        print("\n" + "\n".join(lines))  # noqa: T201 - a measurement to read, not to assert on


def test_sizes_of_the_tiny_decoder():
    shapes = {cache.shape for cache in graphpass.analyze_caches(TinyDecoder().build()).caches}
    assert shapes == {(None, HEADS, None, HEAD_DIM)}


@pytest.mark.parametrize("copies", [4, -1], ids=["known", "unknown"])
def test_one_key_head_copied_for_all_queries(copies):
    """As gpt_bigcode is exported: the copies and not the head would be taken for the heads of the cache."""
    query, new, past = (ops.parameter([-1, heads, -1, 16], openvino.Type.f32) for heads in (4, 1, 1))
    count = ops.parameter([1], openvino.Type.i64)
    for node, name in ((query, "query"), (new, "new"), (past, "past_key_values.0.key"), (count, "copies")):
        node.output(0).set_names({name})
    present = ops.concat([past, new], 2)
    one = ops.constant([1])
    shape = ops.concat([one, one, ops.constant([4]) if copies == 4 else count, one, one], 0)
    copied = ops.broadcast(ops.unsqueeze(present, ops.constant([2])), shape, broadcast_spec="BIDIRECTIONAL")
    key = ops.reshape(copied, ops.constant([0, 4, -1, 16]), special_zero=True)
    outputs = [ops.result(ops.scaled_dot_product_attention(query, key, key)), ops.result(present)]
    outputs[1].output(0).set_names({"present.0.key"})
    model = OpenVINOModel(openvino.Model(outputs, [query, new, past, count], "one head"))
    (cache,) = graphpass.analyze_caches(model).caches
    assert (cache.kind, cache.axes) == ("kv", KV)
