"""What edits of a session's caches cost, as parts of a plain decode step: `python tests/benchmarks/sessions.py`.

A made model of 8 layers (16 heads, 4 KV heads of 64) decodes on the CPU plugin behind 1k, 4k and 16k cached tokens:

    plain        a step of the runtime alone
    session      a step of a session that may reorder, with nothing to reorder; goal: at most 1.02
    trim         dropping 8 positions; goal: at most 0.02, flat in the length of the cache
    reorder      moving 8 slots; goal: at most 0.2
    after edits  the step behind both
    EP's form    a step of the model with `insert-reorder{form=gpu}`, as ONNX Runtime's OpenVINO provider makes it
    states       dropping 8 positions by get_state and set_state
    reset        what the session saves: forgetting all and feeding it again (at 1k)

Caches are filled with random numbers instead of by a prompt.

For a hybrid (lfm2), a history of 4k tokens gets another last turn of 8 tokens: the old one is rolled back, the new one
is fed, up to its first logits. Less a plain step of the same engine, that stands against openvino.genai, whose stateful
pipeline resets and feeds everything again; goal: at least 50 times cheaper. Its pipeline on paged attention, which
looks up blocks that it kept, is shown beside it.

All are measured in turn in one process, so that a busy machine slows all alike; what counts are ratios of medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import openvino
import openvino_genai
from support.models import export

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.sessions.tokens import Tokens
from graphpass.testing import Family, tiny_model

LENGTHS = (1024, 4096, 16384)
ROUNDS = 25
#: Of the two whose difference is small.
PAIRS = 150
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TURN = 8

Action = Callable[[], object]


class Plain:
    """The runtime alone."""

    def __init__(self, model: OpenVINOModel) -> None:
        self.request: Any = openvino.Core().compile_model(model.ov_model, "CPU", EXACT).create_infer_request()
        self.length = 0

    def step(self, ids: np.ndarray) -> np.ndarray:
        new = ids.shape[1]
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones((1, self.length + new), np.int64),
            "position_ids": np.arange(self.length, self.length + new)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits = self.request.infer(feeds)["logits"]
        self.length += new
        return logits

    def fill(self, length: int, random: np.random.Generator) -> None:
        self.request.reset_state()
        self.length = 0
        self.step(np.ones((1, 1), np.int64))
        for state in self.request.query_state():
            _, heads, _, size = state.state.shape
            state.state = openvino.Tensor(random.standard_normal((1, heads, length, size), np.float32))
        self.length = length

    def trim(self, count: int) -> None:
        self.length -= count
        for state in self.request.query_state():
            kept = np.ascontiguousarray(state.state.data[:, :, : self.length])
            state.state = openvino.Tensor(kept)

    def prompt(self, ids: np.ndarray) -> np.ndarray:
        self.request.reset_state()
        self.length = 0
        return self.step(ids)


def fill(session: DecodeSession, length: int, random: np.random.Generator) -> None:
    """As if a prompt of ``length`` tokens had been fed."""
    session.prefill([1])
    ids = np.ones((1, length - 1), np.int64)
    assert session._slots is not None
    session._slots.append(Tokens(ids, ids, np.arange(1, length)[None]))
    for cache in session.store.growing:
        _, heads, _, size = session.store.read(cache).shape
        session.store.write(cache, random.standard_normal((1, heads, length, size), np.float32))


def medians(actions: dict[str, Action], rounds: int) -> dict[str, float]:
    """Seconds of each action; all take their turn, every other round in the opposite order."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for count in range(rounds + 2):
        for name in list(actions) if count % 2 else reversed(list(actions)):
            start = time.perf_counter()
            actions[name]()
            seconds[name].append(time.perf_counter() - start)
    # The first ones allocate and compile.
    return {name: statistics.median(found[2:]) for name, found in seconds.items()}


def passed(model: graphpass.Model, pipeline: str) -> Any:
    return graphpass.PassManager(graphpass.parse(pipeline)).run(model).model


def measure_edits() -> None:
    source = tiny_model(Family(heads=16, kv_heads=4, head_dim=64, vocabulary=512), layers=8)
    model = graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model
    moving = passed(model, "insert-reorder{form=gpu}")
    session, edited, provider = open_session(model), open_session(model), open_session(moving)
    plain, states = Plain(model), Plain(model)
    random = np.random.default_rng(0)
    token = np.ones((1, 1), np.int64)
    draft = np.ones((1, 9), np.int64)
    print(f"{'cached':>7} {'plain':>9}" + "".join(f"{name:>13}" for name in COLUMNS))
    for length in LENGTHS:
        for one in (session, edited, provider):
            fill(one, length, random)
        for one in (plain, states):
            one.fill(length, random)
        # By themselves: what else runs in between leaves memory in another state for one than for the other.
        pair = medians({"plain": lambda: plain.step(token), "session": lambda: session.step(token)}, PAIRS)
        spent: dict[str, list[float]] = {"trim": [], "reorder": [], "after edits": [], "states": []}

        def edit(spent: dict[str, list[float]] = spent) -> None:
            edited.step(draft)
            slots = np.arange(edited.length - 8, edited.length)
            spent["reorder"].append(_seconds(lambda: edited.reorder(slots, slots[::-1])))
            spent["trim"].append(_seconds(lambda: edited.trim(8)))
            spent["after edits"].append(_seconds(lambda: edited.step(token)))
            edited.trim(2)

        def drop(spent: dict[str, list[float]] = spent) -> None:
            states.step(draft)
            spent["states"].append(_seconds(lambda: states.trim(9)))

        found = medians(
            {"plain": lambda: plain.step(token), "EP's form": lambda: provider.step(token), "edit": edit, "drop": drop},
            ROUNDS,
        )
        found |= {name: statistics.median(seconds[2:]) for name, seconds in spent.items()}
        found["session"] = pair["session"] / pair["plain"] * found["plain"]
        if length == LENGTHS[0]:
            prompt = np.ones((1, length), np.int64)
            found["reset"] = min(_seconds(lambda prompt=prompt: states.prompt(prompt)) for _ in range(3))
        ratios = "".join(f"{found[name] / found['plain']:13.3f}" if name in found else " " * 13 for name in COLUMNS)
        print(f"{length:7} {found['plain'] * 1e3:6.2f} ms{ratios}", flush=True)
    print(f"edited session: {edited.stats}")


COLUMNS = ("session", "trim", "reorder", "after edits", "EP's form", "states", "reset")


class Histories:
    """Texts with another last turn each time; to this tokenizer a character is a token."""

    def __init__(self, folder: Path, length: int) -> None:
        self._random = np.random.default_rng(0)
        self._tokenizer = openvino_genai.Tokenizer(folder)
        self._turns = 0
        self.base = self._text(length)

    def next(self) -> str:
        """The history, with a last turn that differs from the one before it from the first token on."""
        self._turns += 1
        return self.base + CHARACTERS[self._turns % len(CHARACTERS)] + self._text(TURN - 1)

    def ids(self, text: str) -> np.ndarray:
        """The tokens ``[1, length]`` of a text."""
        ids = self._tokenizer.encode(text).input_ids.data
        assert ids.shape == (1, len(text))
        return ids

    def _text(self, length: int) -> str:
        return "".join(self._random.choice(list(CHARACTERS), length))


#: Seconds up to the first logits behind another last turn, and of a plain step behind it.
Turn = Callable[[], tuple[float, float]]


def turn_of_genai(folder: Path, backend: str, histories: Histories) -> Turn:
    pipe = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    pipe.get_tokenizer().set_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    config = openvino_genai.GenerationConfig(max_new_tokens=2, ignore_eos=True)

    def turn() -> tuple[float, float]:
        history = openvino_genai.ChatHistory([{"role": "user", "content": histories.next()}])
        metrics = pipe.generate(history, config).perf_metrics
        first = metrics.get_ttft().mean - metrics.get_tokenization_duration().mean
        return first / 1e3, metrics.get_tpot().mean / 1e3

    return turn


def turn_of_session(session: DecodeSession, histories: Histories) -> Turn:
    session.prefill(histories.ids(histories.base))

    def turn() -> tuple[float, float]:
        ids = histories.ids(histories.next())
        return _seconds(lambda: session.step(session.align(ids))), _seconds(lambda: session.step([[5]]))

    return turn


def turn_of_replay(session: DecodeSession, histories: Histories) -> Turn:
    def turn() -> tuple[float, float]:
        ids = histories.ids(histories.next())
        return _seconds(lambda: session.prefill(ids)), _seconds(lambda: session.step([[5]]))

    return turn


def measure_hybrid(length: int = 4096) -> None:
    folder = export("lfm2", "ov-stateful")
    histories = Histories(folder, length)
    source = graphpass.load(folder)
    told, exported = open_session(passed(source, "expose-position-ids")), open_session(source)
    turns = {
        "session": turn_of_session(told, histories),
        "model as exported": turn_of_session(exported, histories),
        "session, replaying": turn_of_replay(open_session(source), histories),
        "genai stateful": turn_of_genai(folder, "SDPA", histories),
        "genai paged": turn_of_genai(folder, "PA", histories),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for count in range(ROUNDS + 2):
        for name in list(turns) if count % 2 else reversed(list(turns)):
            seconds[name].append(turns[name]())
    found = {name: np.median(all_rounds[2:], axis=0) * 1e3 for name, all_rounds in seconds.items()}
    own = found["session"][0] - found["session"][1]
    print(
        f"lfm2, {length} tokens: another last turn of {TURN}, a plain step, the difference, and how many of a session's"
    )
    for name, (first, step) in found.items():
        print(f"{name:>20} {first:9.2f} ms {step:9.2f} ms {first - step:9.2f} ms {(first - step) / own:9.1f}")
    print(f"session: {told.stats}\nmodel as exported: {exported.stats}", flush=True)


def _seconds(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    measure_hybrid()
    measure_edits()
