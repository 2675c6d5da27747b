"""The pass `regroup-heads`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy

from graphpass.analysis.attention.tiled_heads import FoldedHeads, TiledHeads, find_tiled_heads
from graphpass.engine.passes import Done, Pass
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.passes.attention.repeated_heads import repeated_heads


@dataclass(frozen=True)
class RegroupHeads(Pass[Model]):
    """Permute query heads so that consecutive heads read the same head of keys and values.

    PyTorch's attention of one token may have the query heads of a head of keys and values as its rows. They become
    heads.

    JetMoE repeats its heads as a whole: query head ``h`` reads head ``h % n``. Grouped-query attention of all runtimes
    reads head ``h // times``, and fuses only copies in that order with the cache. The query and the result are permuted
    by a Gather each. Attention with a mask or a sink for each head is unchanged and reported.

    Shapes:
        key, value ``[batch, n, sequence, head_dim]``; query and result ``[batch, n * times, length, head_dim]``

    Before:
        attention(query, Tile(key, [1, times, 1, 1]), Tile(value, [1, times, 1, 1]))
    After:
        query heads 0, n, .., 1, n + 1, .. -> attention(., Reshape(Broadcast(Unsqueeze(key))), ..) -> inverse order
    """

    name: ClassVar[str] = "regroup-heads"

    def run(self, model: Model) -> Done:
        found, rewriter = model.analysis(find_tiled_heads), model.rewriter()
        blocks = [block for block in found if not isinstance(block, Miss)]
        for block in blocks:
            if isinstance(block, TiledHeads):
                _regroup(rewriter, block)
            else:
                _unfold(rewriter, block)
        rewriter.finish()
        notes = tuple(f"heads of attention stay tiled: {miss}" for miss in found if isinstance(miss, Miss))
        return Done({"attention regrouped": len(blocks)}, notes)


def _regroup(rewriter: Rewriter, block: TiledHeads) -> None:
    write = rewriter.under(block.attention.node.name)
    order = numpy.arange(block.heads * block.times).reshape(block.times, block.heads).T.reshape(-1)
    for value, indices in ((block.query, order), (block.attention.output, numpy.argsort(order))):
        permuted = write.op("Gather", value, write.constant(indices, "heads"), axis=1, label="regrouped")
        rewriter.redirect_uses(value, permuted)
    for tile in block.tiles:
        repeated = repeated_heads(rewriter.under(tile.name), tile.source(), block.heads, block.times)
        rewriter.replace(tile.outputs[0], rewriter.handle(repeated))


def _unfold(rewriter: Rewriter, block: FoldedHeads) -> None:
    write, query, result = rewriter.under(block.attention.node.name), block.attention.query, block.attention.output
    assert query is not None
    shape = [0, block.heads * block.times, 1, -1]
    heads = write.op("Reshape", query, shape, zero_keeps=True, label="heads")
    rewriter.redirect_uses(query, heads, lambda use: use.node.op != "ShapeOf")
    for use in block.reads:
        operand = use.node.source(use.port)
        repeated = repeated_heads(rewriter.under(operand.name), operand, block.heads, block.times)
        rewriter.redirect(use.node, use.port, repeated)
    rows = write.op("Reshape", result, [0, block.heads, block.times, -1], zero_keeps=True, label="rows")
    rewriter.redirect_uses(result, rows)
