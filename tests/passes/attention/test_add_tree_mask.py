"""`add-tree-mask`: each branch of a tree equals that branch decoded alone, and an empty tree changes nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
from support.attention_operator import OPERATOR_MASKS, decoder_with_attention_operator
from support.decode import Decoder, compiled, fused_attention, greedy
from support.loaded import exported, onnx_model, openvino_model, run_once
from support.models import reference
from support.onnx_request import OnnxRequest

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.model import Model
from graphpass.passes.attention.add_tree_mask import AddTreeMask
from graphpass.runtime import open_session

#: Of each kind of mask: additive and shared, boolean (olmo2), behind merged heads (xglm), decomposed (onnx).
EXPORTS = [
    ("llama", "ov-stateful"),
    ("llama", "ov-stateless"),
    ("llama", "onnx"),
    ("qwen3", "ov-stateful"),
    ("qwen3", "onnx"),
    ("gpt2", "ov-stateful"),
    ("gpt2", "onnx"),
    ("gpt2_upcast", "onnx"),
    ("deepseek_v3", "ov-stateful"),
    ("falcon", "onnx"),
    ("olmo2", "ov-stateless"),
    ("opt", "onnx"),
    ("xglm", "ov-stateful"),
]


def source(name: str, variant: str) -> Model:
    return exported(f"{name}/{variant}")


def treed(name: str, variant: str) -> Model:
    return run_once(source(name, variant), AddTreeMask()).model


def request(model: Model) -> Any:
    if isinstance(model, OnnxModel):
        return OnnxRequest(model)
    assert isinstance(model, OpenVINOModel)
    return compiled(model.ov_model).create_infer_request()


def random_tree(seed: int, size: int) -> list[int]:
    """Parents, by index among the tree's tokens; -1 is the cached history."""
    chosen = random.Random(seed)
    return [chosen.randrange(-1, place) for place in range(size)]


def ancestors(parents: list[int], node: int) -> list[int]:
    """The way from the history to ``node``, which is its last."""
    way: list[int] = []
    while node >= 0:
        way.insert(0, node)
        node = parents[node]
    return way


def tree_feeds(parents: list[int], past: list[int]) -> dict[str, numpy.ndarray]:
    """The inputs that describe a tree behind ``past`` real positions in each row."""
    ways = [ancestors(parents, node) for node in range(len(parents))]
    mask = numpy.full([1, len(parents), len(parents)], numpy.finfo(numpy.float32).min, numpy.float32)
    for node, way in enumerate(ways):
        mask[0, node, way] = 0
    depths = [len(way) - 1 for way in ways]
    return {"tree_mask": mask, "position_ids": numpy.array([[length + depth for depth in depths] for length in past])}


def check_branches(treed_request: Any, plain_request: Any, prompts: list[list[int]], parents: list[int]) -> None:
    """That a step over a tree gives, at each node, what decoding the way to it gives."""
    width = max(map(len, prompts))
    ids = numpy.array([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    real = numpy.array([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    tokens = numpy.array([random.Random(row).sample(range(5, 300), len(parents)) for row in range(len(prompts))])
    decoder = Decoder(treed_request)
    decoder.step(ids, real)
    decoder.step(tokens, **tree_feeds(parents, [len(prompt) for prompt in prompts]))
    for node in range(len(parents)):
        alone = Decoder(plain_request)
        alone.step(ids, real)
        found = alone.step(tokens[:, ancestors(parents, node)])
        numpy.testing.assert_allclose(decoder.logits[:, node], found, atol=1e-4)


@pytest.mark.parametrize(("name", "variant"), EXPORTS)
def test_branches_equal_separate_decoding(name, variant):
    prompt = reference(name)["prompt_ids"]
    check_branches(request(treed(name, variant)), request(source(name, variant)), [prompt], random_tree(3, 7))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "pipeline", ["", "make-stateless", "to-openvino,fuse-attention,expose-position-ids,make-stateful"]
)
@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_branches_beyond_windows_of_positions(pipeline, seeds):
    """Longer than the window of 8; windows that count places in the cache refuse."""
    steps = f"{pipeline},window-from-positions".lstrip(",")
    plain = run_once(source("gemma3_text", "onnx" if "to-" in pipeline else "ov-stateful"), steps).model
    model = PassManager([AddTreeMask()]).run(plain).model
    for seed in range(seeds):
        check_branches(request(model), request(plain), [[5, 6, 7, 8, 9, 10]], random_tree(seed, 9))


@pytest.mark.parametrize("variant", ["ov-stateful", "onnx"])
def test_trees_in_a_padded_batch_equal_their_branches(variant):
    prompts = [reference("llama")["prompt_ids"], [7, 9]]
    requests = request(treed("llama", variant)), request(source("llama", variant))
    for seed in range(3):
        check_branches(*requests, prompts, random_tree(seed, 5))


def test_a_tree_for_each_row():
    prompts = numpy.array([[3, 5, 8], [4, 9, 11]])
    trees = [[-1, 0, 0, 2], [-1, -1, 1, 0]]
    decoder = Decoder(request(treed("llama", "ov-stateful")))
    decoder.step(prompts)
    feeds = [tree_feeds(parents, [3]) for parents in trees]
    tokens = numpy.array([[20, 21, 22, 23], [30, 31, 32, 33]])
    decoder.step(tokens, **{name: numpy.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    for row, parents in enumerate(trees):
        for node in range(len(parents)):
            alone = Decoder(request(source("llama", "ov-stateful")))
            alone.step(prompts[row : row + 1])
            found = alone.step(tokens[row : row + 1, ancestors(parents, node)])
            numpy.testing.assert_allclose(decoder.logits[row : row + 1, node], found, atol=1e-4)


def test_a_tree_after_further_new_tokens_equals_its_branches():
    """The mask is of the last tokens; those before them are a chain that goes on from the cache."""
    decoder, alone = (Decoder(request(make("llama", "ov-stateful"))) for make in (treed, source))
    feeds = tree_feeds([-1, -1], [5])
    feeds["position_ids"] = numpy.array([[3, 4, 5, 5]])
    for one in (decoder, alone):
        one.step(numpy.array([[3, 5, 8]]))
    decoder.step(numpy.array([[10, 11, 12, 13]]), **feeds)
    numpy.testing.assert_allclose(decoder.logits[:, 3], alone.step(numpy.array([[10, 11, 13]])), atol=1e-4)


def test_after_fusing_and_making_stateful():
    pipeline = "to-openvino,fuse-attention,make-stateful"
    plain = PassManager(parse(pipeline)).run(onnx_model("qwen3")).model
    model = PassManager(parse(f"{pipeline},add-tree-mask")).run(onnx_model("qwen3")).model
    check_branches(request(model), request(plain), [[5, 6, 7]], random_tree(1, 6))


@pytest.mark.parametrize(("name", "variant"), [("llama", "ov-stateful"), ("gpt2", "ov-stateful"), ("qwen3", "onnx")])
def test_an_empty_tree_changes_nothing(name, variant):
    expected = reference(name)
    assert greedy(request(treed(name, variant)), [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2


def test_sessions_feed_an_empty_tree():
    expected = reference("llama")
    session = open_session(treed("llama", "onnx"))
    assert session.prefill(expected["prompt_ids"])[0, -1].argmax() == expected["greedy_ids"][0]


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "deepseek_v3"])
def test_the_cpu_plugin_still_fuses(name):
    before, after = (compiled(make(name, "ov-stateful").ov_model) for make in (source, treed))
    assert fused_attention(after) == fused_attention(before) > 0


@pytest.mark.parametrize("masked", OPERATOR_MASKS)
def test_trees_in_the_operator_of_onnx_equal_their_branches(masked):
    plain = decoder_with_attention_operator(masked)
    model = PassManager([AddTreeMask()]).run(plain).model
    model.validate()
    for seed in range(3):
        check_branches(request(model), request(plain), [[5, 6, 7]], random_tree(seed, 6))


def test_layers_share_one_tree_mask():
    model = treed("llama_12l", "ov-stateful")
    names = [op.get_friendly_name() for op in model.ov_model.get_ops() if op.get_type_name() == "Add"]
    assert sum(name.endswith("/tree_mask") for name in names) == 1


class TestRefuses:
    @pytest.mark.parametrize(
        ("name", "variant", "message"),
        [
            ("lfm2", "ov-stateful", "GP361.*position_ids"),
            ("bloom", "onnx", "GP361.*position_ids"),
            ("gemma3_text", "ov-stateful", "GP363.*window counts slots"),
            ("gpt_neo", "onnx", "GP363.*window"),
        ],
    )
    def test_models_without_room_for_a_tree_are_refused(self, name, variant, message):
        with pytest.raises((PreconditionError, UnsupportedError), match=message):
            PassManager([AddTreeMask()]).run(source(name, variant))

    def test_linear_caches_are_refused(self):
        model = openvino_model("lfm2")
        exposed = PassManager(parse("expose-position-ids")).run(model).model
        with pytest.raises(UnsupportedError, match=r"GP362: .*cache .*conv.* cannot store a tree"):
            PassManager([AddTreeMask()]).run(exposed)

    def test_a_second_run_is_refused(self):
        with pytest.raises(PreconditionError, match="GP360"):
            PassManager([AddTreeMask()]).run(treed("llama", "ov-stateful"))

    def test_a_model_without_caches_is_refused(self):
        with pytest.raises(PreconditionError, match="GP302"):
            PassManager([AddTreeMask()]).run(source("llama", "ov-nocache"))
