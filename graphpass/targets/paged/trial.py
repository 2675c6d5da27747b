"""Trial of the transformation of openvino.genai's default backend, with a prompt."""

from __future__ import annotations

from graphpass.analysis.caches.step_tokens import visual_levels
from graphpass.engine.findings import Observation
from graphpass.ir.model import Model
from graphpass.targets.worker import run_worker

#: Tolerance of logits in f32, relative to the largest logit.
_TOLERANCE = 1e-3

_WORKER = """
from openvino._offline_transformations import paged_attention_transformation
tokens = numpy.array([5, 9, 17, 33, 21, 40, 3, 28, 11, 60, 52, 7, 19, 44, 36, 2, 31, 13, 25, 8])
positions = numpy.arange(len(tokens))

def prepared(model, feeds):
    request = core.compile_model(model, "CPU", exact).create_infer_request()
    for port in request.model_inputs:
        value = feeds(port)
        request.set_tensor(port, value if isinstance(value, openvino.Tensor) else openvino.Tensor(value))
    return request

def logits(request):
    request.infer()
    return request.get_tensor("logits").data.astype(numpy.float64).reshape(len(tokens), -1)

#: The transformation loses the size of embeddings.
hidden = []

def embeddings(port, leading):
    rows = numpy.random.default_rng(0).standard_normal((64, *hidden), numpy.float32)
    return rows[tokens].reshape(*leading, len(tokens), -1)

def placed(port, leading):
    rank = port.partial_shape.rank.get_length()
    axes = [size.get_length() for size in list(port.partial_shape)[: rank - 1 - len(leading)]]
    return numpy.broadcast_to(positions, (*axes, *leading, len(tokens))).copy()

def in_a_row(port, values):
    return values.reshape([1] * (port.partial_shape.rank.get_length() - 1) + [-1])

def typed(port, leading):
    return in_a_row(port, numpy.zeros_like(tokens))

def marked(port, leading):
    return in_a_row(port, tokens % 3 == 0)

def features(port, leading):
    return numpy.random.default_rng(1).standard_normal((levels, (tokens % 3 == 0).sum(), *hidden), numpy.float32)

#: Inputs with shapes that differ from model to model.
shaped = {"inputs_embeds": embeddings, "position_ids": placed, "token_type_ids": typed}
shaped |= {"visual_pos_masks": marked, "deepstack_visual_embeds": features}

def made(port, known, leading=()):
    name = next(name for name in port.get_names() if name in known or name in shaped)
    return shaped[name](port, leading) if name in shaped else known[name]

def whole(port):
    known = {
        "input_ids": tokens[None], "attention_mask": numpy.ones((1, len(tokens)), numpy.int64),
        "beam_idx": numpy.zeros(1, numpy.int32),
    }
    return made(port, known, leading=(1,))

def paged(port):
    one = numpy.array([0], numpy.int32)
    known = {
        "input_ids": tokens, "max_context_len": numpy.array(len(tokens), numpy.int32),
        "past_lens": one, "subsequence_begins": numpy.array([0, len(tokens)], numpy.int32), "block_indices": one,
        "block_indices_begins": numpy.array([0, 1], numpy.int32), "la.past_lens": one, "la.cache_interval": one,
        "la.block_indices": numpy.array([0, 1], numpy.int32),
        "la.block_indices_begins": numpy.array([0, 2], numpy.int32),
    }
    names = port.get_names()
    if any("_cache." in name or "_table." in name for name in names):
        sizes = [2 if size.is_dynamic else size.get_length() for size in port.partial_shape]
        return openvino.Tensor(numpy.zeros(sizes, port.get_element_type().to_dtype()))
    return made(port, known)

def run():
    model = core.read_model(path)
    named = (port.partial_shape for port in model.inputs if "inputs_embeds" in port.get_names())
    hidden.extend(shape[2].get_length() for shape in named)
    paged_attention_transformation(model)
    answer["left"] = [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() == "ReadValue"]
    try:
        expected, request = logits(prepared(core.read_model(path), whole)), prepared(model, paged)
    except (RuntimeError, StopIteration, ValueError) as error:
        answer["unfed"] = words(error) if str(error) else "an input is not known"
        return
    try:
        difference = numpy.abs(logits(request) - expected).max() / numpy.abs(expected).max()
        answer["difference"] = float(difference) if numpy.isfinite(difference) else None
    except (RuntimeError, ValueError) as error:
        answer["failed"] = words(error)
"""


def observe(model: Model) -> Observation:
    """Run SDPAToPagedAttention, and compare the logits of a prompt.

    Returns:
        The observation, with the ids of the transformed variables.
    """
    levels = f"levels = {visual_levels(model.graph)}"
    done = run_worker(f"{levels}\n{_WORKER}", model, "ran SDPAToPagedAttention on a copy")
    if done.refusal is not None:
        return done.refusal
    reads = model.graph.of_op("ReadValue")
    fused = frozenset(node.attributes["variable"] for node in reads if node.name not in done.answer["left"])
    if "unfed" in done.answer:
        return Observation(f"{done.tried}, without running it: {done.answer['unfed']}", fused, "cache")
    if "failed" in done.answer:
        return Observation(done.tried, fused, "cache", refused=f"a prompt fails: {done.answer['failed']}")
    difference = done.answer["difference"]
    amount = "are NaN" if difference is None else f"differ by {difference:.1e} of the largest"
    wrong = f"a prompt's logits {amount}" if difference is None or difference > _TOLERANCE else None
    return Observation(f"{done.tried}, and a prompt's logits {amount}", fused, "cache", wrong=wrong, ran=True)
