"""Lower EmbedLayerNormalization."""

from __future__ import annotations

from functools import reduce

from graphpass.passes.lower.lowered_operator import LoweredOperator

_IDS, _SEGMENTS, _WORDS, _POSITION_TABLE, _SEGMENT_TABLE, _GAMMA, _BETA, _MASK, _POSITIONS = range(9)
_RESULT, _MASK_INDEX, _SUM = range(3)


def adds_positions(operator: LoweredOperator) -> bool:
    """Return whether the operator reads position ids or returns the sum of the embeddings."""
    return operator.read(_POSITIONS) is not None or bool("".join(map(str, operator.native.outputs[_SUM:])))


def lower_embed_norm(operator: LoweredOperator) -> None:
    """Lower com.microsoft EmbedLayerNormalization to Gather, Add and LayerNormalization.

    OpenVINO's frontend (2026.4.1) ignores the position ids and the output with the sum.

    Shapes:
        ids, segments and position ids ``[batch, length]``; tables ``[rows, hidden]``; gamma and beta ``[hidden]``

    Before:
        EmbedLayerNormalization(ids, segments, words, positions, types, gamma, beta, mask, position_ids)
    After:
        LayerNormalization(words[ids] + positions[position_ids] + types[segments], gamma, beta), and the sum

    Raises:
        UnsupportedError: GP341, the index of the mask has users.
    """
    write = operator.write
    outputs = () if operator.node is None else operator.node.outputs[_MASK_INDEX:_SUM]
    if any(operator.rewriter.graph.uses(value) for value in outputs):
        raise operator.refusal("its index of the mask has users")
    positions = operator.read(_POSITIONS)
    if positions is None:
        length = write.op("Squeeze", write.size(operator.read(_IDS), 1), axes=[0])
        positions = write.op("Unsqueeze", write.op("Range", 0, length, 1), axes=[0])
    tables = [(_WORDS, operator.read(_IDS)), (_POSITION_TABLE, positions), (_SEGMENT_TABLE, operator.read(_SEGMENTS))]
    rows = [write.op("Gather", operator.read(port), ids, axis=0) for port, ids in tables if ids is not None]
    total = reduce(lambda left, right: write.op("Add", left, right), rows)
    weights = [operator.read(port) for port in (_GAMMA, _BETA)]
    epsilon = operator.attribute("epsilon", 1e-12)
    norm = write.op("LayerNormalization", total, *weights, label="norm", domain="", axis=-1, epsilon=epsilon)
    operator.replace(_SUM, total)
    operator.replace(_RESULT, norm)
