"""The inventory of real exports against a table checked by hand, under other names and in other orders."""

from __future__ import annotations

import functools
import time

import numpy
import onnx
import openvino
import pytest
from openvino import opset13 as ops
from support.cache_graphs import HEAD_DIM, HEADS, Renaming, TinyDecoder, renamed, shuffled
from support.loaded import openvino_model
from support.models import export, fixtures

import graphpass
from graphpass.caches import Axes
from graphpass.onnx_model import OnnxModel
from graphpass.openvino_model import OpenVINOModel

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)
FIXED = Axes(batch=0)

#: Models that each write attention in a way of their own: the export, and how many heads a layer keeps.
FAMILIES = {
    **dict.fromkeys(("bloom", "opt", "falcon_alibi", "gptj", "gpt_neo", "gpt2_upcast"), ("onnx", 4)),
    **dict.fromkeys(("gpt_oss", "gemma2", "mistral_sw8", "phi3"), ("onnx", 2)),
    "falcon": ("onnx", 1),
    "xglm": ("ov-stateful", 4),
    "olmo2": ("ov-stateless", 2),
}

#: What each layer keeps: a(ttention), c(onvolution), m(amba: convolution and recurrent state), x(cross-attention, too).
LAYERS = {
    "llama": "aa",
    "llama_12l": "a" * 12,
    "gpt2": "aa",
    "qwen3": "aa",
    "qwen3_moe": "aa",
    "gemma3_text": "aaaa",
    "deepseek_v3": "aa",
    "mamba": "mm",
    "lfm2": "caca",
    "granitemoehybrid": "mama",
    "qwen3_next": "mmma",
    "t5": "xx",
    "whisper": "xx",
    **dict.fromkeys(FAMILIES, "aa"),
    "gemma2": "aaaa",
}

#: Fixed sizes by model and role; the batch stands first, and the sequence on axis 2 of keys and values.
SIZES = {
    "llama": {"key": (2, 16), "value": (2, 16)},
    "llama_12l": {"key": (2, 8), "value": (2, 8)},
    "gpt2": {"key": (4, 16), "value": (4, 16)},
    "qwen3": {"key": (2, 16), "value": (2, 16)},
    "qwen3_moe": {"key": (2, 16), "value": (2, 16)},
    "gemma3_text": {"key": (2, 16), "value": (2, 16)},
    "deepseek_v3": {"key": (4, 24), "value": (4, 16)},
    "mamba": {"conv": (64, 4), "recurrent": (64, 8)},
    "lfm2": {"conv": (64, 3), "key": (2, 16), "value": (2, 16)},
    "granitemoehybrid": {"conv": (160, 4), "recurrent": (8, 16, 16), "key": (2, 16), "value": (2, 16)},
    "qwen3_next": {"conv": (128, 4), "recurrent": (4, 16, 16), "key": (2, 16), "value": (2, 16)},
    "t5": dict.fromkeys(("key", "value", "cross_key", "cross_value"), (2, 16)),
    "whisper": dict.fromkeys(("key", "value", "cross_key", "cross_value"), (2, 16)),
    **{name: {"key": (heads, 16), "value": (heads, 16)} for name, (_, heads) in FAMILIES.items()},
}

ROLES = {
    "a": ("key", "value"),
    "c": ("conv",),
    "m": ("conv", "recurrent"),
    "x": ("key", "value", "cross_key", "cross_value"),
}

#: Ids that optimum's export gave the variables that hold cross-attention caches, by layer.
CROSS_IDS = {
    "t5": [("266", "269"), ("Transpose_17147.0", "432")],
    "whisper": [("200", "202"), ("322", "324")],
}

DENSE = ["llama", "llama_12l", "gpt2", "qwen3", "qwen3_moe", "gemma3_text", "deepseek_v3"]
HYBRID = ["mamba", "lfm2", "granitemoehybrid", "qwen3_next"]
KINDS = (
    dict.fromkeys([*DENSE, *FAMILIES, "t5", "whisper"], "kv") | dict.fromkeys(HYBRID, "hybrid") | {"mamba": "linear"}
)

DECODERS = [
    *(f"{name}/{variant}" for name in DENSE for variant in ("onnx", "ov-stateless", "ov-stateful")),
    *(f"{name}/{variant}" for name in HYBRID for variant in ("ov-stateless", "ov-stateful")),
    *(f"{name}/onnx-genai" for name in ("llama", "llama_12l", "qwen3", "lfm2")),
    *(f"{name}/{variant}" for name, (variant, _) in FAMILIES.items()),
    "mamba/onnx-raw",
    "llama/onnx-fp16",
    "llama/ov-stateful-fp16",
    "llama/ov-stateful-int8",
    *(f"{name}/onnx/decoder_with_past_model.onnx" for name in ("t5", "whisper")),
    *(f"{name}/ov-stateless/openvino_decoder_with_past_model.xml" for name in ("t5", "whisper")),
    *(f"{name}/ov-stateful/openvino_decoder_model.xml" for name in ("t5", "whisper")),
]

WITHOUT_CACHES = [
    "llama/onnx-nocache",
    "llama/ov-nocache",
    *(f"{name}/onnx/encoder_model.onnx" for name in ("t5", "whisper")),
    *(
        f"{name}/{variant}/openvino_encoder_model.xml"
        for name in ("t5", "whisper")
        for variant in ("ov-stateless", "ov-stateful")
    ),
    "whisper/onnx-genai/encoder.onnx",
]

FILLS_ONLY = [
    *(f"{name}/onnx/decoder_model.onnx" for name in ("t5", "whisper")),
    *(f"{name}/ov-stateless/openvino_decoder_model.xml" for name in ("t5", "whisper")),
]

#: In `test_bodies`: a decoder under one If, and cross-attention inside MultiHeadAttention.
ELSEWHERE = [
    "t5/onnx/decoder_model_merged.onnx",
    "whisper/onnx/decoder_model_merged.onnx",
    "whisper/onnx-genai/decoder.onnx",
]


@functools.cache
def model(path: str) -> graphpass.Model:
    return graphpass.load(fixtures() / path)


def shape_of(cache: graphpass.Cache) -> tuple[int | None, ...]:
    """The shape without symbols."""
    assert cache.shape is not None
    return tuple(size if isinstance(size, int) else None for size in cache.shape)


def expected_table(path: str) -> list[tuple]:
    """Rows of (name, kind, role, layer, axes, shape, write) in the inventory's order."""
    name, variant = path.split("/")[:2]
    rows, counts = [], dict.fromkeys(("key", "value", "conv", "recurrent"), 0)
    for layer, letter in enumerate(LAYERS[name]):
        for role in ROLES[letter]:
            kind = "linear" if role in {"conv", "recurrent"} else "cross" if role.startswith("cross") else "kv"
            past, present = ports(name, variant, role, layer, counts)
            counts[role] = counts.get(role, 0) + 1
            sizes = SIZES[name][role]
            if variant == "onnx-genai":
                sizes = (64, 2) if role == "conv" else (sizes[0], None)
            shape = (None, *sizes) if kind == "linear" else (None, sizes[0], None, sizes[1])
            rows.append((past, kind, role, layer, FIXED if kind == "linear" else KV, shape, present))
    return rows


def ports(name: str, variant: str, role: str, layer: int, counts: dict[str, int]) -> tuple[str, str | None]:
    """How the exporter calls a cache: (past, present), or (variable id, None)."""
    word = {"recurrent": "ssm"}.get(role, role)
    if role.startswith("cross"):
        key_or_value = role.removeprefix("cross_")
        if variant == "ov-stateful":
            return CROSS_IDS[name][layer][key_or_value == "value"], None
        return f"past_key_values.{layer}.encoder.{key_or_value}", None
    if name in {"t5", "whisper"}:
        past, present = f"past_key_values.{layer}.decoder.{role}", f"present.{layer}.decoder.{role}"
    elif name in HYBRID and variant != "onnx-genai":
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
        named = {graphpass.model.find_model(fixtures() / path).relative_to(fixtures()).as_posix() for path in
                 (*DECODERS, *WITHOUT_CACHES, *FILLS_ONLY, *ELSEWHERE)}  # fmt: skip
        assert named == files

    @pytest.mark.parametrize("path", DECODERS)
    def test_every_cache_is_what_it_is(self, path):
        inventory = graphpass.analyze_caches(model(path))
        assert table(inventory) == expected_table(path)
        assert inventory.kind == KINDS[path.split("/")[0]]
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
    def test_no_caches_where_there_are_none(self, path):
        inventory = graphpass.analyze_caches(model(path))
        assert inventory.kind == "none"
        assert not inventory.caches
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    @pytest.mark.parametrize("path", FILLS_ONLY)
    def test_a_decoder_that_only_fills_the_caches_has_presents_without_pasts(self, path):
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
    @pytest.mark.parametrize("path", DECODERS)
    def test_under_random_names_in_random_order(self, path):
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
    def test_caches_of_attention_that_is_not_plain(self, options):
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
    def test_a_present_that_is_missing(self, name):
        broken = openvino_model("llama", "ov-stateless").clone()
        native = broken.ov_model
        present = name.replace("past_key_values", "present")
        native.remove_result(next(port.get_node() for port in native.outputs if present in port.get_names()))
        assert graphpass.analyze_caches(broken).unpaired_inputs == (name,)

    @pytest.mark.parametrize("name", ["past_key_values.1.key", "past_key_values.0.value"])
    def test_a_past_that_is_a_constant(self, name):
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
    def test_in_onnx(self, variant):
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
    def test_embeddings_and_the_hidden_state_they_turn_into(self, name, length):
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
    def test_a_residual_that_is_only_added(self, length):
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

    def test_a_model_that_is_only_products(self):
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
