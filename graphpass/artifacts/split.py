"""Split one dynamic model into a prefill and a decode model of static shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpass.engine.passes import Pass
from graphpass.errors import UsageError, VerificationError
from graphpass.io import Weights, Written
from graphpass.ir.inputs import check_positions
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect

#: Name of the shared model while the two are made of it.
_BASE = "model"

#: Bytes of weights in an ONNX file above which they leave it to be shared.
_WORTH_SHARING = 1 << 16

#: Attention of the onnxruntime-genai builder, which keeps its cache inside.
_BUILDER = "GroupQueryAttention"

#: Greedy steps after each prompt.
_STEPS = 4


@dataclass(frozen=True, slots=True)
class Split:
    """Sizes of the two models.

    Attributes:
        prompt: Tokens of the longest prompt.
        chunk: Tokens of a run of the prefill model.
        capacity: Positions of the decode model, those of the prompt included.
    """

    prompt: int
    chunk: int
    capacity: int

    def __post_init__(self) -> None:
        """Check that they fit into each other.

        Raises:
            UsageError: GP266.
        """
        if not 1 <= self.chunk <= self.prompt <= self.capacity:
            sizes = f"a chunk of {self.chunk}, a prompt of {self.prompt} and a capacity of {self.capacity}"
            raise UsageError("GP266", f"{sizes} do not fit", "1 <= chunk <= prompt <= capacity")
        check_positions("a capacity", self.capacity)

    def preparation(self, model: Model, dialect: Dialect) -> tuple[Pass[Any], ...]:
        """Return passes that leave attention nothing but positions that its mask shows, in ``dialect``."""
        from graphpass.analysis.caches.inventory import analyze_caches
        from graphpass.engine.registry import get_pass, get_target

        inventory = analyze_caches(model)
        if dialect == "onnx":
            only: Any = {"only": ("group-query-attention",)}
            return (get_pass("lower-operators")(**only),) if any(True for _ in model.graph.of_op(_BUILDER)) else ()
        usual = get_target("cpu").pipeline(model)
        end = next(place for place, step in enumerate(usual) if step.name == "fuse-attention")
        extended = [step.name for step in usual if step.name == "extend-mask-to-past"]
        names = ["expose-position-ids"] if inventory.kind != "linear" else []
        before, after = (
            tuple(get_pass(name)() for name in some)
            for some in (
                ["make-stateless"] if inventory.stateful else [],
                ["densify-experts", *extended, *names, "window-from-positions"],
            )
        )
        return (*before, *usual[: end + 1], *after)

    def phases(self) -> dict[str, Pass[Any]]:
        """Return the pass that makes each of the two models, by its name."""
        from graphpass.engine.registry import get_pass

        static: Any = get_pass("make-static")
        return {"prefill": static(length=self.chunk, past=self.prompt), "decode": static(length=1, past=self.capacity)}


def stage_split(
    prepared: Model, split: Split, folder: Path, weights: Weights = "auto"
) -> tuple[dict[str, Model], Written]:
    """Write both models into a staged folder, over one file of weights.

    An IR's weights lie beside its ``.xml`` in a file of the same name, where ``read_model`` looks for them, with the
    suffix ``.bin``: both are hard links to one file. ONNX models name one data file.
        prepared: The model to split.
        split: Their sizes.
        folder: A folder of `graphpass.storage.staging.staging`.
        weights: Way of the input's weights there; see `graphpass.io.stage_model`.

    Returns:
        The models as written, ``"prefill"`` and ``"decode"``; and how the input's weights were stored.

    Raises:
        PassFailedError, UnsupportedError: As the pass `make-static`.
        WriteError: As `stage_model`.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.io import Written, load, stage_model

    suffix = ".onnx" if prepared.dialect == "onnx" else ".xml"
    base = folder / f"{_BASE}{suffix}"
    first = stage_model(prepared, folder, base.name, _limit(prepared), weights)
    appended = first.appended
    models = {}
    for name, step in split.phases().items():
        # Read anew for each: weights that the one appends change the file that the other was read from.
        model = PassManager([step]).run(load(base)).model
        done = stage_model(model, folder, f"{name}{suffix}", weights="share" if model.weight_files else "auto")
        appended += done.appended
        models[name] = load(folder / f"{name}{suffix}")
    base.unlink()
    if suffix == ".xml":
        base.with_suffix(".bin").unlink()
    return models, Written(first.shared, appended)


def verify_split(reference: Model, models: dict[str, Model], split: Split) -> int:
    """Compare both models, run as one session, with the dynamic model.

    Prompts of 1 token, a chunk less and more 1, a chunk, and the longest one, each followed by greedy steps.

    Args:
        reference: The dynamic model.
        models: The two, as `stage_split` returns them.
        split: Their sizes.

    Returns:
        Number of positions that were compared.

    Raises:
        VerificationError: GP601, they do not compute the same.
        UnsupportedError: One of them cannot be run here.
    """
    import numpy as np

    from graphpass.runtime import open_pair, open_session
    from graphpass.runtime.embedding_model import let_take_ids
    from graphpass.verify.difference import Tolerance

    tolerance = Tolerance.for_models(reference, *models.values())
    dynamic, pair = open_session(reference), open_pair(models["prefill"], models["decode"])
    let_take_ids(reference, dynamic, pair)
    vocabulary = dynamic.prefill([0]).shape[-1]
    ids = np.random.default_rng(0).integers(0, vocabulary, split.prompt)
    compared = 0
    for length in sorted({1, max(split.chunk - 1, 1), split.chunk, min(split.chunk + 1, split.prompt), split.prompt}):
        expected, found = dynamic.prefill(ids[:length]), pair.prefill(ids[:length])
        for step in range(min(_STEPS, split.capacity - length) + 1):
            if step:
                token = expected[:, -1].argmax(-1)
                expected, found = dynamic.step(token), pair.step(token)
            agree = np.isclose(found[:, -1], expected[:, -1], rtol=tolerance.relative, atol=tolerance.absolute)
            if not agree.all():
                largest = float(np.abs(found[:, -1] - expected[:, -1]).max())
                raise VerificationError(
                    "GP601",
                    f"prefill and decode do not compute the same as the input: a prompt of {length} tokens, "
                    f"step {step}, logits differ by {largest:.2e}",
                    "nothing was written; --no-verify writes it all the same",
                )
            compared += 1
    return compared


def _limit(model: Model) -> int | None:
    """Return the size above which an ONNX model's weights leave its file."""
    if model.dialect != "onnx":
        return None
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import SMALL, tensors

    assert isinstance(model, OnnxModel)
    # Small tensors never leave the file, however many there are.
    sizes = (len(tensor.raw_data) for tensor in tensors(model.proto))
    stored = sum(size for size in sizes if size > SMALL)
    return model.proto.ByteSize() - 1 if stored >= _WORTH_SHARING else None
