"""Reports on caches and attention: folded by layer, with totals, views and warnings."""

import pytest
from support.caches import cache, inventory

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.view import View
from graphpass.ir.cache import Axes
from graphpass.ir.miss import Miss
from graphpass.reports.inventory import Inspection, cache_json, inventory_in_short, miss_json, warnings_of
from graphpass.testing import Family, parse_model, tiny_model

LLAMA = tiny_model("llama", layers=3)
VIEWS = (View("a", "agrees"), View("b", "agrees", ("a remark",)), View("c", "misreads", ("finds no cache",)))
PLAIN = parse_model("%x = Parameter : f32[n, 4]\n%y = Relu(%x)\nResult(%y) {name=y}")


def lines(model, views=(), **options):
    text = Inspection(model, analyze_caches(model), views, {}).text(**options)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_layers_with_equal_caches_share_a_line():
    found = lines(LLAMA, VIEWS)
    assert "caches (6)" in found
    assert "layers 0-2 key, value kv f32 [batch=batch, heads=2, sequence=past, head_dim=8] 384 B per token" in found
    assert "total for a batch of 1: 384 B per token, 384 KB per 1k tokens" in found
    assert "agrees a, b" in found
    assert "misreads c" in found
    assert "c finds no cache" in found[found.index("warnings (1)") + 1]


def test_hybrids_have_a_line_for_each_kind():
    model = tiny_model(Family(convolution=True), layers=2)
    found = lines(model)
    assert "layer 0 conv linear f32 [batch=batch, 32, 2] 256 B fixed" in found
    assert "layer 1 key, value kv f32 [batch=batch, heads=2, sequence=past, head_dim=8] 128 B per token" in found
    assert "total for a batch of 1: 128 B per token, 128 KB per 1k tokens; 256 B fixed" in found


def test_unfolded_reports_have_the_evidence_of_each_cache():
    found = lines(LLAMA, VIEWS, unfolded=True)
    assert [line for line in found if line.endswith("-> present.1.key")] == ["past.1.key -> present.1.key"]
    assert sum("the result is the key of" in line for line in found) == 3
    assert {"a: agrees", "c: misreads", "finds no cache"} <= set(found)


def test_a_model_without_caches_has_no_views():
    found = lines(PLAIN, VIEWS[:2])
    assert "caches (0)" in found
    assert "views of other programs" not in found
    assert inventory_in_short(PLAIN, analyze_caches(PLAIN)) == "ONNX, stateless, kind none, no caches, no attention"


def test_sizes_that_are_unknown_are_left_out():
    text = Inspection(PLAIN, inventory(cache("a", shape=("b", 2, "past", "d"))), (), {}).text()
    assert "head_dim=d]" in text
    assert "per token" not in text


def test_names_with_newlines_stay_on_one_line():
    model = tiny_model("llama", layers=1)
    found = inventory(cache("k\nerror: x", kind="unknown", evidence=("no\nreason",)))
    text = Inspection(model, found, (), {}).text()
    assert not any(line.startswith(("error", "reason")) for line in text.splitlines())


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ((cache(kind="unknown", evidence=("why",)),), "cannot determine the kind of k: why"),
        ((cache(kind="unknown", evidence=()),), "cannot determine the kind of k: no evidence"),
        ((cache(),), None),
    ],
)
def test_unknown_kinds_are_warned_of(given, warning):
    assert warnings_of(inventory(*given), VIEWS[:2]) == (() if warning is None else (warning,))


def test_ports_without_a_partner_are_warned_of():
    found = warnings_of(inventory(unpaired_inputs=("i",), unpaired_outputs=("o",)), VIEWS)
    assert found == ("input i looks like a past but has no present", "output o looks like a present but has no past",
                     "c finds no cache")  # fmt: skip


def test_json_has_numbers_without_symbols():
    entry = cache_json(cache("past.7", axes=Axes(0, 1, 2, 3)))
    assert (entry["shape"], entry["index"], entry["bytes_per_token"]) == ([None, 2, None, 4], 7, 32)
    assert cache_json(cache(shape=None))["shape"] is None
    node = next(iter(PLAIN.graph.of_op("Relu")))
    assert miss_json(Miss(node, "why")) == {"node": "y", "reason": "why"}
    assert miss_json(None) is None
