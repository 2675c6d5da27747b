"""Compare what target `ort-genai` makes of optimum's exports with the builder's models of the same weights.

Three environments, since exporters want different versions of transformers:

    python tests/benchmarks/builder.py export FOLDER tiny|large [NAME ...]    torch==2.13.0, transformers==4.57.6,
                                                                              optimum-onnx==0.1.0
    python tests/benchmarks/builder.py build FOLDER [NAME ...]                torch==2.13.0, transformers==5.23.0,
                                                                              onnxruntime-genai==0.18.0
    python tests/benchmarks/builder.py compare FOLDER [NAME ...]              graphpass

``export`` writes a checkpoint with random weights to FOLDER/NAME/hf, and optimum's ONNX; ``build`` makes
FOLDER/NAME/builder by ``onnxruntime_genai.models.builder`` (f32, CPU). ``compare`` converts the export, counts the
operators that ONNX Runtime runs in a step, and lets both models take turns at steps and prompts; a ratio is the median
of those of neighbours, ours by the builder's. Past and present are one buffer. Small models are only counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

CAPACITY = 8320
LENGTHS = (256, 2048, 8192)
PROMPTS = {256: 7, 2048: 5, 8192: 3}
STEPS = 25

#: Checkpoints of fewer bytes are not timed.
SMALL = 2**24

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
TINY = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
#: Shapes of Qwen2.5-0.5B with eight layers and a smaller vocabulary: 0.18 billion parameters in llama.
LARGE = {
    "vocab_size": 32000,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 8,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": CAPACITY,
}
SIZES = {"tiny": (TINY, 16, 128), "large": (LARGE, 64, 1216)}

#: Options beside those of a size: heads of a fixed size, windows, experts.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 0},
    "phi3": {"sliding_window": None, "original_max_position_embeddings": 0},
    "gemma3_text": {"head_dim": 0, "sliding_window": 512, "sliding_window_pattern": 2},
    "gpt_oss": {
        "head_dim": 0,
        "sliding_window": 512,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_scaling": None,
    },
    "qwen3_moe": {
        "head_dim": 0,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 0,
        "norm_topk_prob": True,
    },
}


def configured(name: str, size: str) -> dict[str, Any]:
    sizes, head_dim, expert = SIZES[size]
    options = {**TOKENS, **sizes, **ARCHITECTURES[name]}
    for option, value in (
        ("head_dim", head_dim),
        ("moe_intermediate_size", expert),
        ("original_max_position_embeddings", sizes["max_position_embeddings"]),
    ):
        if option in options:
            options[option] = value
    return options


def export(folder: Path, size: str, names: list[str]) -> None:
    import torch
    import transformers
    from optimum.exporters.onnx import onnx_export_from_model

    for name in names or ARCHITECTURES:
        torch.manual_seed(2)
        config = transformers.AutoConfig.for_model(name, **configured(name, size))
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 1:  # exporters share norms of equal weights
                    weight.add_(torch.randn_like(weight), alpha=0.1)
        model.generation_config = transformers.GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=2)
        place = folder / name
        model.save_pretrained(place / "hf")
        _write_tokenizer(place / "hf", config.vocab_size)
        print(name, f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.2f} million parameters", flush=True)
        onnx_export_from_model(
            model, output=place / "export", task="text-generation-with-past", no_post_process=True, do_validation=False
        )


def _write_tokenizer(folder: Path, size: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({f"t{number}": number for number in range(size)}, unk_token="t3"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="t0", bos_token="t1", eos_token="t2")
    wrapped.save_pretrained(folder)


def build(folder: Path, names: list[str]) -> None:
    for name in names or [one for one in ARCHITECTURES if (folder / one).is_dir()]:
        options = ["-i", folder / name / "hf", "-o", folder / name / "builder", "-c", folder / "cache"]
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *options, "-p", "fp32", "-e", "cpu"]
        subprocess.run(command, check=True)


class Runner:
    """Runs one model, whose pasts and presents are one buffer each."""

    def __init__(self, file: Path, *, profile: Path | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Threads of the model that ran last spin on otherwise, and slow the other one.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile)
        self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.inputs = {port.name: port for port in self.session.get_inputs()}
        config = json.loads((file.parent / "genai_config.json").read_text())["model"]["decoder"]
        #: The builder's models have no numbers for these.
        self.sizes = [1, config["num_key_value_heads"], CAPACITY, config["head_size"]]
        self.buffers: dict[str, Any] = {}

    def fill(self) -> None:
        import numpy
        import onnxruntime

        random = numpy.random.default_rng(0)
        for name in self.inputs:
            if name.startswith("past"):
                held = random.standard_normal(self.sizes, numpy.float32)
                self.buffers[name] = onnxruntime.OrtValue.ortvalue_from_numpy(held)

    def run(self, past: int, length: int) -> float:
        import numpy

        binding = self.session.io_binding()
        feeds = {
            "input_ids": numpy.full((1, length), 7, numpy.int64),
            "attention_mask": numpy.ones((1, past + length), numpy.int64),
            "position_ids": numpy.arange(past, past + length)[None],
        }
        for name, array in feeds.items():
            if name in self.inputs:
                binding.bind_cpu_input(name, array)
        for name, held in self.buffers.items():
            binding.bind_ortvalue_input(name, held)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present").replace("past", "present"), held)
        binding.bind_output("logits")
        start = time.perf_counter()
        self.session.run_with_iobinding(binding)
        return time.perf_counter() - start


def compare(folder: Path, names: list[str]) -> None:
    import onnxruntime

    print(json.dumps({"onnxruntime": onnxruntime.__version__}))
    for name in names or [one for one in ARCHITECTURES if (folder / one / "builder/model.onnx").is_file()]:
        place = folder / name
        command = ["-m", "graphpass.cli", "convert", place / "export", "-o", place / "ours", "--target", "ort-genai"]
        subprocess.run([sys.executable, *command, "--quiet", "--no-verify"], check=True)
        files = {"ours": place / "ours/model.onnx", "builder": place / "builder/model.onnx"}
        show(name, {kind: operators(file, place) for kind, file in files.items()})
        if (place / "hf/model.safetensors").stat().st_size > SMALL:
            times(files)


def operators(file: Path, folder: Path) -> Counter[str]:
    """Count the operators that ONNX Runtime runs in a step, after its own fusions."""
    runner = Runner(file, profile=folder / "profile")
    runner.fill()
    runner.run(16, 1)
    trace = Path(runner.session.end_profiling())
    events = json.loads(trace.read_text())
    trace.unlink()
    return Counter(event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time"))


def show(name: str, counts: dict[str, Counter[str]]) -> None:
    ours, builder = counts["ours"], counts["builder"]
    totals = f"{ours.total()} operators, the builder's {builder.total()}: {ours.total() / builder.total():.2f}x"
    parts = [f"{op} {ours[op]}/{builder[op]}" for op in sorted(ours | builder) if ours[op] != builder[op]]
    print(f"{name:12} {totals}; {', '.join(parts)}", flush=True)


def times(files: dict[str, Path]) -> None:
    runners = {name: Runner(file) for name, file in files.items()}
    for runner in runners.values():
        runner.fill()
    for what, past, length, turns in (
        *((f"step at {past}", past, 1, STEPS) for past in LENGTHS),
        *((f"prompt of {length}", 0, length, turns) for length, turns in PROMPTS.items()),
    ):
        seconds: dict[str, list[float]] = {name: [] for name in runners}
        for runner in runners.values():
            runner.run(past, length)  # the first run of a length takes memory
        for turn in range(turns):
            for name in sorted(runners, reverse=turn % 2 == 0):
                seconds[name].append(runners[name].run(past, length))
        ratio = statistics.median(one / other for one, other in zip(*(seconds[name] for name in runners), strict=True))
        cells = "".join(f"{name:>10} {statistics.median(found) * 1e3:9.1f} ms" for name, found in seconds.items())
        print(f"{'':12} {what:16}{cells} {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    task, target, *rest = sys.argv[1:]
    if task == "export":
        export(Path(target), rest[0], rest[1:])
    else:
        {"build": build, "compare": compare}[task](Path(target), rest)
