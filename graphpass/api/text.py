"""Print a model in the text form."""

from __future__ import annotations

from graphpass.jobs.watch import Watch
from graphpass.progress import stage, stages

from .reading import ModelSource, read_model


def text(
    model: ModelSource,
    *,
    around: str | None = None,
    distance: int = 3,
    layer: int | None = None,
    watch: Watch | None = None,
) -> str:
    """Return the text form of a model, with effective masks as comments.

    Args:
        model: A file, a folder with one model, or a loaded model.
        around: Print only the neighborhood of this node: its name, or a suffix of its name.
        distance: Largest number of edges between ``around`` and a printed node.
        layer: Print only this layer.
        watch: Selects the model if a folder has several.

    Returns:
        One operator a line, producers first.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, the folder has several models; GP271, no node or several nodes match ``around``; GP272, the
            layer does not exist.

    Examples:
        >>> import graphpass
        >>> print(graphpass.text("build/fixtures/llama/onnx", around="/lm_head/MatMul", distance=0).splitlines()[-1])
        %lm_head.MatMul = MatMul(%norm.Mul_1, %MatMul_803) : f32[batch_size, sequence_length, 320]
    """
    with stages("printing", 2):  # reading, and the text
        loaded = read_model(model, (), watch)

        from graphpass.reports.text_form import in_text_form

        with stage("writing the text"):
            return "\n".join(map(str, in_text_form(loaded, around=around, distance=distance, layer=layer)))
