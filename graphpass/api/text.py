"""Print a model in the text form."""

from __future__ import annotations

from graphpass.jobs.watch import Watch
from graphpass.progress import stage, stages

from .reading import Given, read_model


def text(
    model: Given, *, around: str | None = None, distance: int = 3, layer: int | None = None, watch: Watch | None = None
) -> str:
    """Return the text form of a model, with effective masks as comments.

    Args:
        model: A file, a folder that holds one model, or a model.
        around: A node to print the surroundings of: its name, or the end of it.
        distance: Number of edges from that node.
        layer: A layer to print.
        watch: Chooses one of several models of a folder.

    Returns:
        One operator a line, producers first.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, a folder holds several models; GP271 there is no such node, or there are several; GP272 there
            is no such layer.

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
