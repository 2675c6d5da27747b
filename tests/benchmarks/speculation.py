"""Speculative decoding against plain steps: `python tests/benchmarks/speculation.py FOLDER [PART]`.

A llama of real shapes (hidden 896, 14 heads over 2 of 64, MLP 4864, vocabulary 8192; 8 layers, 134 million parameters)
and a hybrid of its width (lfm2, 8 layers, 141 million) in f32 are made below FOLDER, with random weights. Layers from
the second on are damped, so that the first alone, which is the draft model, often chooses the same token. All generate
the same greedy tokens after a prompt of 1024 (the hybrid: 256); checked each time.

openvino, onnxruntime, hybrid: tokens a second after the prompt, as multiples of plain greedy steps of a session. Goal:
1.3 at 70 % acceptance. Drafts are chains of 4, or trees of 8 in 4 levels:

    chain, tree      scripted with a seed: each token is right with a chance of 70 % (given that those before it are);
                     trees have the right one in second place for half of the others; they cost nothing
    chain, copying   the same, wrong tokens taken out of the caches by copies: get_state and set_state on OpenVINO,
                     arrays cut on ONNX Runtime
    chain, replaying the same, a wrong token leads to a reset, and all is fed again
    model            the first layer drafts
    lookup           what followed the last tokens earlier in the prompt or text
    genai ...        openvino_genai.LLMPipeline on the same files (on paged attention), with the same draft model

trim: dropping 4 of 5 positions at 2k and 16k cached tokens as a part of a plain step. Goal: at most 0.02. Also the step
after it, and the same by copies.

All take turns in one process, so that a busy machine slows all alike. Ratios to greedy steps are those within each
turn: the median, the lowest and the highest.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import openvino_genai

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sessions import EXACT, Plain, fill, medians, passed
from support.models import export
from support.scale import Size, scaled

import graphpass
from graphpass.analysis.caches.layer_states import find_layer_states
from graphpass.engine.pipeline import parse_target
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.speculative import Drafter, DraftModel, PromptLookup, speculate

SIZES = Size(896, 14, 2, 64, 4864, 8192, 8, positions=32768)
#: Layers of the draft model, and what the outputs of later ones are multiplied by.
EARLY, DAMPING = 1, 0.035
PROMPT, COUNT, ROUNDS = 1024, 48, 7
#: Of the hybrid, whose prompt is fed again and again.
SHORT, FEW = 256, 3
LENGTHS = (2048, 16384)
CHANCE, DRAFT = 0.7, 4


@dataclass
class Scripted:
    """Guesses the tokens to come, right by chance alone."""

    truth: Sequence[int]
    seed: int
    is_tree: bool = False

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        paths: list[tuple[int, ...]] = []
        path: tuple[int, ...] = ()
        for token in self.truth[len(history) : len(history) + DRAFT]:
            draws = self.random.random(2)
            wrong = [(token + 1 + int(self.random.integers(1000))) % SIZES.vocabulary for _ in range(2)]
            first = token if draws[0] < CHANCE else wrong[0]
            if self.is_tree:
                paths.append((*path, token if first != token and draws[1] < 0.5 else wrong[1]))
            path = (*path, first)
        return [path, *paths] if path else []


class Nothing:
    """Guesses nothing."""

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        return []


@dataclass
class Clocked:
    """Notes the time of the first draft: the prompt has been fed by then."""

    drafter: Drafter
    start: float = 0.0

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        self.start = self.start or time.perf_counter()
        return self.drafter.propose(history)


class Kept:
    """Computes a prompt once, and goes back to it from then on."""

    def __init__(self, session: DecodeSession) -> None:
        self.session = session
        self.kept: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        if self.kept is None:
            self.first = self.session.prefill(ids)
            self.kept = self.session.snapshot()
        self.session.restore(self.kept)
        return self.first


class CopyingStates(Plain):
    """Trims as whoever has no session: all states out, cut, and in again."""

    logits_output = "logits"
    kept: dict[str, np.ndarray] | None = None

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        states = self.request.query_state()
        if self.kept is None:
            self.first = self.prompt(np.asarray([ids]))
            self.kept = {state.name: state.state.data.copy() for state in states}
        for state in states:
            state.state = openvino.Tensor(self.kept[state.name])
        self.length = len(ids)
        return self.first

    def step(self, ids: Any, parents: object = None) -> np.ndarray:
        assert parents is None
        return super().step(np.asarray(ids))

    def rewind(self, length: int) -> None:
        if length < self.length:
            self.trim(self.length - length)


class CopyingArrays:
    """Carries presents to pasts as arrays, and cuts those."""

    logits_output = "logits"

    def __init__(self, file: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.inputs = {port.name: port for port in self.session.get_inputs()}
        self.outputs = [port.name for port in self.session.get_outputs()]
        self.length = 0
        self.pasts = {
            name: np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32)
            for name, port in self.inputs.items()
            if name.startswith("past")
        }
        self.kept: Any = None

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        if self.kept is None:
            self.first = self.step([ids])
            self.kept = self.pasts
        self.pasts, self.length = self.kept, len(ids)
        return self.first

    def step(self, ids: Any, parents: object = None) -> np.ndarray:
        assert parents is None
        tokens = np.asarray(ids, np.int64)
        stop = self.length + tokens.shape[1]
        feeds = {"input_ids": tokens, "attention_mask": np.ones((1, stop), np.int64), **self.pasts}
        if "position_ids" in self.inputs:
            feeds["position_ids"] = np.arange(self.length, stop)[None]
        results = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
        self.length = stop
        self.pasts = {name: results[name.replace("past_key_values", "present")] for name in self.pasts}
        return results["logits"]

    def rewind(self, length: int) -> None:
        if length < self.length:
            self.length = length
            self.pasts = {name: past[:, :, :length].copy() for name, past in self.pasts.items()}


class Replaying:
    """Takes tokens back by forgetting all and feeding what is left."""

    logits_output = "logits"

    def __init__(self, session: DecodeSession) -> None:
        self.session = session
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        self.tokens = list(ids)
        return self.session.prefill(ids)

    def step(self, ids: Any, parents: object = None) -> np.ndarray:
        assert parents is None
        self.tokens += [int(token) for token in ids[0]]
        return self.session.step(ids)

    def rewind(self, length: int) -> None:
        if length < self.length:
            self.prefill(self.tokens[:length])


#: Tokens, seconds of all but the first of them, tokens drafted and accepted.
Result = tuple[tuple[int, ...], float, int, int]
Way = Callable[[int], Result]
"""Generates; takes a seed."""


def speculating(target: Any, prompt: Sequence[int], make: Callable[[int], Drafter]) -> Way:
    def run(seed: int) -> Result:
        clocked = Clocked(make(seed))
        done = speculate(target, prompt, clocked, count=COUNT)
        return done.tokens, time.perf_counter() - clocked.start, done.drafted, done.accepted

    return run


def greedy(session: Kept, prompt: Sequence[int]) -> Way:
    def run(seed: int) -> Result:
        tokens = [int(session.prefill(prompt)[0, -1].argmax())]
        start = time.perf_counter()
        while len(tokens) < COUNT:
            tokens.append(int(session.step(tokens[-1:])[0, -1].argmax()))
        return tuple(tokens), time.perf_counter() - start, 0, 0

    return run


def genai(folder: Path, prompt: Sequence[int], draft: Path | None = None, **properties: Any) -> Way:
    if draft is not None:
        properties["draft_model"] = openvino_genai.draft_model(draft, "CPU", **_PLUGIN)
    pipe = openvino_genai.LLMPipeline(folder, "CPU", **_PLUGIN, **properties)
    options = {"max_ngram_size": 3} if "prompt_lookup" in properties else {}
    if properties:
        options["num_assistant_tokens"] = DRAFT

    def run(seed: int) -> Result:
        ids = openvino.Tensor(np.asarray([prompt]))
        config = openvino_genai.GenerationConfig(max_new_tokens=COUNT, ignore_eos=True, **options)
        stamps: list[float] = []

        def note(tokens: Any) -> Any:
            stamps.append(time.perf_counter())
            return openvino_genai.StreamingStatus.RUNNING

        class Streamer(openvino_genai.StreamerBase):
            def write(self, token: Any) -> Any:
                return note(token)

            def end(self) -> None:
                """Nothing is left to print."""

        tokens = tuple(pipe.generate(ids, config, Streamer()).tokens[0])
        return tokens, time.perf_counter() - stamps[0], 0, 0

    return run


_PLUGIN = {name: EXACT[name] for name in ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION")}


def compared(ways: dict[str, Way], rounds: int = ROUNDS) -> None:
    """Let all ways take turns; every other round in the opposite order."""
    found: dict[str, list[Result]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name in list(ways) if turn % 2 else reversed(list(ways)):
            found[name].append(ways[name](turn))
    seconds = {name: [one[1] for one in results[1:]] for name, results in found.items()}
    plain = statistics.median(seconds["greedy"])
    for name, results in found.items():
        drafted, accepted = (sum(one[place] for one in results) for place in (2, 3))
        ratios = sorted(one / own for one, own in zip(seconds["greedy"], seconds[name], strict=True))
        median = statistics.median(ratios)
        same = "" if {one[0] for one in results} == {found["greedy"][0][0]} else "OTHER TOKENS"
        part = f"{accepted / drafted:4.0%} of {drafted // len(results)} drafted accepted" if drafted else ""
        speed = f"{(COUNT - 1) / plain * median:6.1f} tokens/s {median:5.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:18} {speed} {part} {same}", flush=True)


def damped(file: Path) -> None:
    """Scale what layers from `EARLY` on add to the residual stream, in the data file."""
    proto = onnx.load(file, load_external_data=False)
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        words = node.name.split("layers.")[-1].split("/")
        is_out = node.op_type == "MatMul" and any(part in node.name for part in ("o_proj", "out_proj", "down_proj"))
        if not is_out or not words[0].isdigit() or int(words[0]) < EARLY:
            continue
        tensor = weights[node.input[1]]
        place = {entry.key: entry.value for entry in tensor.external_data}
        data = np.memmap(file.parent / place["location"], np.float32, "r+", int(place["offset"]), tuple(tensor.dims))
        data *= np.float32(DAMPING)
        data.flush()


def shortened(model: graphpass.Model) -> graphpass.Model:
    """Let the head read the state after the first layers, and drop the others."""
    short = model.clone()
    states = find_layer_states(short)
    assert not isinstance(states, str)
    (early,), (last,) = states[EARLY - 1], states[-1]
    rewriter = short.rewriter()
    graph = short.graph
    rewriter.replace(last, rewriter.native(early))
    late = [name for name in (*graph.reads, *graph.writes) if _layer(name) >= EARLY]
    rewriter.drop([(graph.writes[name] if name in graph.writes else graph.reads[name]) for name in reversed(late)])
    rewriter.finish()
    return short


def _layer(name: str) -> int:
    return next((int(word) for word in name.split(".") if word.isdigit()), -1)


def made(folder: Path, name: str, size: Size, targets: Sequence[str], *, draft: bool = False) -> dict[str, Path]:
    """Write the model, and the model that drafts for it, for each target."""
    source_file = folder / name / "export" / "model.onnx"
    if not source_file.exists():
        damped(scaled(name, size, source_file.parent, seed=0))
    source = graphpass.load(source_file)
    files = {"export": source_file}
    for target in targets:
        word = target.partition("{")[0]
        for kind in ("", "-draft") if draft else ("",):
            model = shortened(source) if kind else source
            made_file = folder / name / f"{word}{kind}" / ("model.onnx" if word == "ort" else "openvino_model.xml")
            if not made_file.exists():
                result = graphpass.PassManager(parse_target(target).pipeline(model)).run(model)
                made_file.parent.mkdir()
                graphpass.save(result.model, made_file)
                # openvino.genai asks for a tokenizer, though it is fed tokens.
                for file in export("lfm2", "ov-stateful").glob("openvino_*tokenizer.*"):
                    shutil.copy(file, made_file.parent)
            files[f"{word}{kind}"] = made_file
    return files


def prompt_and_text(session: Kept, length: int = PROMPT) -> tuple[list[int], list[int]]:
    """A prompt, and it with the greedy tokens after it."""
    start = np.random.default_rng(1).integers(3, SIZES.vocabulary, length).tolist()
    return start, [*start, *greedy(session, start)(0)[0]]


def measure_openvino(folder: Path) -> None:
    files = made(folder, "llama", SIZES, ["cpu"], draft=True)
    model, draft = graphpass.load(files["cpu"]), graphpass.load(files["cpu-draft"])
    session, trees = Kept(open_session(model)), Kept(open_session(passed(model, "add-tree-mask")))
    drafting = open_session(draft)
    prompt, text = prompt_and_text(session)
    target, small = files["cpu"].parent, files["cpu-draft"].parent
    print(f"OpenVINO, CPU plugin; after {PROMPT} tokens:")
    compared(
        {
            "greedy": greedy(session, prompt),
            "chain": speculating(session, prompt, lambda seed: Scripted(text, seed)),
            "tree": speculating(trees, prompt, lambda seed: Scripted(text, seed, is_tree=True)),
            "chain, copying": speculating(CopyingStates(model), prompt, lambda seed: Scripted(text, seed)),
            "model": speculating(session, prompt, lambda _: DraftModel(drafting, DRAFT)),
            "lookup": speculating(session, prompt, lambda _: PromptLookup(DRAFT)),
            "genai greedy": genai(target, prompt),
            "genai model": genai(target, prompt, small),
            "genai lookup": genai(target, prompt, prompt_lookup=True),
        }
    )


def measure_onnxruntime(folder: Path) -> None:
    files = made(folder, "llama", SIZES, ["ort{context=16512}"], draft=True)
    session, drafting = (
        Kept(open_session(graphpass.load(files["ort"]))),
        open_session(graphpass.load(files["ort-draft"])),
    )
    trees = Kept(open_session(passed(graphpass.load(files["export"]), "add-tree-mask")))
    prompt, text = prompt_and_text(session)
    print(f"ONNX Runtime; after {PROMPT} tokens:")
    compared(
        {
            "greedy": greedy(session, prompt),
            "chain": speculating(session, prompt, lambda seed: Scripted(text, seed)),
            "tree": speculating(trees, prompt, lambda seed: Scripted(text, seed, is_tree=True)),
            "chain, copying": speculating(CopyingArrays(files["export"]), prompt, lambda seed: Scripted(text, seed)),
            "model": speculating(session, prompt, lambda _: DraftModel(drafting, DRAFT)),
            "lookup": speculating(session, prompt, lambda _: PromptLookup(DRAFT)),
        }
    )


def measure_hybrid(folder: Path) -> None:
    files = made(folder, "lfm2", SIZES, ["cpu", "ort{context=16512}"])
    for name in ("cpu", "ort"):
        session, other = Kept(open_session(graphpass.load(files[name]))), open_session(graphpass.load(files[name]))
        prompt, text = prompt_and_text(session, SHORT)
        print(f"hybrid, {name}; after {SHORT} tokens:")
        compared(
            {
                "greedy": greedy(session, prompt),
                "chain": speculating(session, prompt, lambda seed, text=text: Scripted(text, seed)),
                "chain, replaying": speculating(Replaying(other), prompt, lambda seed, text=text: Scripted(text, seed)),
            },
            FEW,
        )


def measure_trim(folder: Path) -> None:
    files = made(folder, "llama", SIZES, ["cpu", "ort{context=16512}"])
    model = graphpass.load(files["cpu"])
    sessions = {"openvino": open_session(model), "onnxruntime": open_session(graphpass.load(files["ort"]))}
    states = CopyingStates(model)
    random = np.random.default_rng(0)
    print("parts of a plain step:")
    for length in LENGTHS:
        states.fill(length, random)
        for name, session in sessions.items():
            fill(session, length, random)
            spent: dict[str, list[float]] = {"trim": [], "step after it": [], "copying": []}

            def cut(session: DecodeSession = session, spent: dict[str, list[float]] = spent) -> None:
                session.step(np.ones((1, DRAFT + 1), np.int64))
                spent["trim"].append(seconds_of(lambda: session.trim(DRAFT)))
                spent["step after it"].append(seconds_of(lambda: session.step([1])))
                session.trim(2)

            def copy(spent: dict[str, list[float]] = spent) -> None:
                states.step(np.ones((1, DRAFT + 1), np.int64))
                spent["copying"].append(seconds_of(lambda: states.trim(DRAFT + 1)))

            def plain(session: DecodeSession = session) -> None:
                session.step([1])

            actions = {"plain": plain, "cut": cut} | ({"copy": copy} if name == "openvino" else {})
            step = medians(actions, 25)["plain"]
            parts = ", ".join(
                f"{what} {statistics.median(found[2:]) / step:.4f}" for what, found in spent.items() if found
            )
            print(f"  {name} at {length}: step {step * 1e3:.1f} ms; {parts}", flush=True)


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


PARTS = {
    "openvino": measure_openvino,
    "onnxruntime": measure_onnxruntime,
    "hybrid": measure_hybrid,
    "trim": measure_trim,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= PARTS.keys():
        sys.exit(__doc__)
    for part in sys.argv[2:] or PARTS:
        PARTS[part](Path(sys.argv[1]))
