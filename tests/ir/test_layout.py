"""KVLayout: every shape, stride, offset and order of axes is what numpy makes of the same axes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy
import pytest
from hypothesis import given, strategies as st
from support.models import export

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import GraphpassError, UnsupportedError, UsageError
from graphpass.io import load
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.layout import KVLayout, KVSizes, layout_of

#: vLLM's table: for each physical axis the logical one, of [layer, block, heads, position, content].
VLLM = {
    "LBHNC": (0, 1, 2, 3, 4),
    "LBNHC": (0, 1, 3, 2, 4),
    "LHBNC": (0, 2, 1, 3, 4),
    "BLHNC": (1, 0, 2, 3, 4),
    "BLNHC": (1, 0, 3, 2, 4),
    "BHLNC": (1, 2, 0, 3, 4),
}


@st.composite
def layouts(draw):
    """Any layout: random axes in random order."""
    axes = draw(st.lists(st.sampled_from("LPBHS"), unique=True))
    packing = draw(st.sampled_from(["", "+packed", "2"]))
    axes += ["D", *(["2"] if packing == "2" else [])]
    text = "".join(draw(st.permutations(axes))) + ("+packed" if packing == "+packed" else "")
    if not packing and "S" in axes and draw(st.booleans()):
        text += "+value-transposed"
    return KVLayout.parse(text)


@st.composite
def sizes_for(draw, layout):
    """Sizes that ``layout`` can hold; 1 and 2 are the ones that could be taken for something else."""
    few = st.integers(1, 4)
    head_dim = draw(few)
    value = draw(few) if layout.packing != "axis" else head_dim
    names = {"layer", "block", "batch", "heads", "sequence"} & set(layout.order)
    return KVSizes((head_dim,), (value,) if value != head_dim else None, **{name: draw(few) for name in sorted(names)})


@st.composite
def cases(draw):
    layout = draw(layouts())
    return layout, draw(sizes_for(layout))


def numbered(layout, sizes, part):
    """The tensor that holds ``part``, of which each element is its own offset, with its axes in logical order."""
    shape = layout.shape(sizes, part)
    tensor = numpy.arange(math.prod(shape)).reshape(shape)
    names = ["layer", "block", "batch", "heads", "sequence", "pair", "content"]
    present = [name for name in names if name in layout.order]
    return dict(enumerate(present)), tensor.transpose([layout.of(part).index(name) for name in present])


@given(layouts())
def test_text_round_trips(layout):
    assert KVLayout.parse(str(layout)) == layout


@pytest.mark.parametrize(("name", "order"), VLLM.items())
def test_layout_names_have_the_order_of_vllm(name, order):
    layout = KVLayout.parse(name)
    assert layout.packing == "content"
    assert str(layout) == name
    # vLLM's own arithmetic: the logical shape, permuted by its table.
    logical = (3, 2, 8, 16, 2 * 64)
    assert layout.shape(KVSizes((64,), layer=3, block=2, heads=8, sequence=16)) == tuple(logical[i] for i in order)


@pytest.mark.parametrize(("alias", "name"), [("NHD", "LBNHC"), ("HND", "LBHNC")])
def test_older_names_of_vllm(alias, name):
    assert KVLayout.parse(alias) == KVLayout.parse(name)


@given(st.data(), cases())
def test_offsets_and_strides_equal_numpy(data, case):
    layout, sizes = case
    part = data.draw(st.sampled_from(["key", "value"]))
    names, tensor = numbered(layout, sizes, part)
    counted = [name for name in names.values() if name not in {"pair", "content"}]
    at = {name: data.draw(st.integers(0, getattr(sizes, name) - 1)) for name in counted}
    at["pair"] = int(part == "value")
    at["content"] = sizes.content[0] if layout.packing == "content" and part == "value" else 0
    element = int(tensor[tuple(at[name] for name in names.values())])
    slot = at.get("block", 0) * sizes.sequence + at.get("sequence", 0)
    place = {"layer": at.get("layer", 0), "batch": at.get("batch", 0), "head": at.get("heads", 0), "slot": slot}
    assert layout.offset(sizes, "f16", part=part, **place) == 2 * element
    assert layout.strides(sizes, part) == {
        name: stride // tensor.itemsize for name, stride in zip(names.values(), tensor.strides, strict=True)
    }


@given(cases())
def test_sizes_are_recovered_from_shapes(case):
    layout, sizes = case
    value_shape = layout.shape(sizes, "value") if layout.packing == "separate" else None
    assert layout.sizes(layout.shape(sizes), value_shape, key=sizes.content[0]) == sizes


@given(cases())
def test_bytes_per_token_do_not_depend_on_the_layout(case):
    layout, sizes = case
    parts = ("key",) if layout.packing != "separate" else ("key", "value")
    elements = sum(math.prod(layout.shape(sizes, part)) for part in parts)
    positions = sizes.block * sizes.batch * sizes.sequence
    assert layout.bytes_per_token(sizes, "f32") * positions == 4 * elements


@given(st.data(), cases())
def test_one_layout_transposed_to_another(data, case):
    layout, sizes = case
    order = tuple(data.draw(st.permutations(layout.order)))
    other = KVLayout(order, layout.packing)
    for part in ("key", "value"):
        moved = numpy.zeros(layout.shape(sizes, part)).transpose(other.transposition(layout, part))
        assert moved.shape == other.shape(sizes, part)
    if layout.packing != "separate" or sizes.value is None:
        assert other.shape(layout.sizes(layout.shape(sizes), key=sizes.content[0])) == other.shape(sizes)


def test_transposed_values_have_their_own_shape():
    layout = KVLayout.parse("BHSD+value-transposed")
    sizes = KVSizes((16,), (24,), batch=2, heads=3, sequence=5)
    assert (layout.shape(sizes), layout.shape(sizes, "value")) == ((2, 3, 5, 16), (2, 3, 24, 5))
    assert KVLayout.parse("BHSD").transposition(layout) == (0, 1, 2, 3)
    assert KVLayout.parse("BHSD").transposition(layout, "value") == (0, 1, 3, 2)


def test_two_blocks_are_two_blocks():
    """A size of 2 is never taken for the pair of key and value: the layout says which axis is which."""
    shape = (1, 2, 16, 8, 128)
    assert KVLayout.parse("NHD").sizes(shape, key=64) == KVSizes((64,), block=2, sequence=16, heads=8)
    pair = KVLayout.parse("P2SHD")
    assert pair.sizes((2, 2, 16, 8, 64)) == KVSizes((64,), block=2, sequence=16, heads=8)
    with pytest.raises(UnsupportedError, match="requires 2 entries for key and value, got 3"):
        pair.sizes((2, 3, 16, 8, 64))


def test_one_head_and_a_head_dim_as_long_as_the_sequence():
    for text in map("".join, itertools.permutations("BHSD")):
        layout, sizes = KVLayout.parse(text), KVSizes((7,), batch=2, heads=1, sequence=7)
        back = KVLayout.parse("BHSD").transposition(layout)
        assert numpy.zeros(layout.shape(sizes)).transpose(back).shape == (2, 1, 7, 7)
        assert layout.sizes(layout.shape(sizes)) == sizes


def test_a_recurrent_state_keeps_a_matrix_for_one_position():
    layout = KVLayout.parse("BHD")
    sizes = KVSizes((16, 8), batch=2, heads=4)
    assert layout.shape(sizes) == (2, 4, 16, 8)
    assert layout.sizes((2, 4, 16, 8)) == sizes
    assert layout.offset(sizes, "f32", batch=1, head=2) == 4 * (1 * 4 * 16 * 8 + 2 * 16 * 8)


@pytest.mark.parametrize("text", ["", "BHS", "BHSX", "BBHSD", "BHSD+", "BHSD+wide", "BHSD+packed+packed", "bhsd"])
def test_text_of_no_layout_is_refused(text):
    with pytest.raises(UsageError, match="GP213"):
        KVLayout.parse(text)


@pytest.mark.parametrize("text", ["2BHSD+packed", "BHSD+packed+value-transposed", "BHD+value-transposed"])
def test_contradictory_layouts_are_refused(text):
    with pytest.raises(UsageError, match="GP213"):
        KVLayout.parse(text)


SIZES = KVSizes((64,), batch=2, heads=8, sequence=16)
REFUSALS = {
    "packed content has no middle of its own": ("GP381", lambda: KVLayout.parse("BHSD+packed").sizes((2, 8, 16, 128))),
    "no axis for the layers": ("GP382", lambda: KVLayout.parse("BHSD").shape(replace(SIZES, layer=2))),
    "too few axes": ("GP382", lambda: KVLayout.parse("BHSD").sizes((2, 8, 16))),
    "unequal parts share an axis": ("GP382", lambda: KVLayout.parse("2BHSD").shape(replace(SIZES, value=(48,)))),
    "key and value apart": ("GP382", lambda: KVLayout.parse("BHSD").sizes((2, 8, 16, 64), (2, 8, 17, 64))),
    "another set of axes": ("GP382", lambda: KVLayout.parse("BHSD").transposition(KVLayout.parse("BSD"))),
    "another packing": ("GP382", lambda: KVLayout.parse("BHSD").transposition(KVLayout.parse("BHSD+packed"))),
    "behind the last position": ("GP382", lambda: KVLayout.parse("BHSD").offset(SIZES, "f16", slot=16)),
    "a head too many": ("GP382", lambda: KVLayout.parse("BHSD").offset(SIZES, "f16", head=8)),
    "four bits": ("GP383", lambda: KVLayout.parse("BHSD").offset(SIZES, "i4")),
    "an unknown type": ("GP383", lambda: KVLayout.parse("BHSD").bytes_per_token(SIZES, "dynamic")),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_impossible_layouts_are_refused(case):
    expected, call = REFUSALS[case]
    with pytest.raises(GraphpassError) as caught:
        call()
    assert caught.value.id == expected


@pytest.mark.parametrize(
    ("name", "variant", "found"),
    [
        ("llama", "onnx", {"BHSD"}),
        ("deepseek_v3", "ov-stateful", {"BHSD"}),
        ("lfm2", "ov-stateless", {"BHSD", "BD"}),
        ("mamba", "ov-stateful", {"BD"}),
    ],
)
def test_layouts_of_exports_are_found(name, variant, found):
    inventory = analyze_caches(load(export(name, variant)))
    assert {str(layout_of(cache)) for cache in inventory.caches} == found


@pytest.mark.parametrize(
    ("axes", "rank", "kind", "text"),
    [
        (Axes(batch=0, heads=2, sequence=1, head_dim=3), 4, "kv", "BSHD"),
        (Axes(batch=0, sequence=1, head_dim=2), 3, "kv", "BSD"),
        (Axes(batch=1), 3, "linear", None),
        (Axes(batch=1, heads=2, sequence=3, head_dim=4), 5, "kv", None),
        (Axes(sequence=0), 2, "kv", None),
    ],
)
def test_layouts_follow_from_axes(axes, rank, kind, text):
    cache = Cache("memory", kind, "unknown", 0, axes, (2,) * rank, "f32", "memory", "next")
    if text is None:
        with pytest.raises(UnsupportedError, match="GP381: cannot infer the layout of cache memory"):
            layout_of(cache)
    else:
        assert str(layout_of(cache)) == text
