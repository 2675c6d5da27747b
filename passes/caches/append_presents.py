"""The pass `append-presents`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.new_entries import find_new_entries
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass

_TOTAL = "total_sequence_length"


@dataclass(frozen=True)
class AppendPresents(Pass[OnnxModel]):
    """Return past and new entries of caches whose outputs have only the new entries.

    Callers of such exports append the entries themselves. Runtimes pass an output on as the next past. The entries may
    be cut from the end of past and new entries, and be transposed before the output.

    Shapes:
        outputs ``[batch, heads, length, head_dim]`` become ``[batch, heads, past + length, head_dim]``, in any order of
        axes

    Before:
        key -> present.0.key (Result), Concat(past.0.key, key) -> attention
    After:
        Concat(past.0.key, key) -> present.0.key (Result), attention
    """

    name = "append-presents"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        rewriter, entries = model.rewriter(), find_new_entries(model)
        for each in entries:
            rewriter.redirect(each.reader, 0, each.whole)
            rewriter.name_dimension(each.result, each.axis, _TOTAL)
        rewriter.finish()
        return Done({"presents appended": len(entries)})
