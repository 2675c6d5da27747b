"""Models that select each row's last token before the logits."""

from __future__ import annotations

from graphpass.ir.model import Model
from graphpass.ir.values import fixed_size, head_of

#: Selection by Gather, by Slice and Squeeze after the product, and by Slice alone, which keeps the axis.
FORMS = ("gathered", "squeezed", "kept")


def of_last_token(model: Model, form: str) -> Model:
    """Return a copy of a decoder with logits of the last token."""
    model = model.clone()
    rewriter, result = model.rewriter(), model.graph.writes["logits"]
    head, vocabulary = head_of(model.graph, result), fixed_size(result.source(), 2)
    assert head is not None
    write = rewriter.under("last_token")
    hidden = head.source()
    last = write.op("Gather", hidden, -1, axis=1) if form == "gathered" else write.slice(hidden, -1, None, 1)
    rewriter.redirect(head, 0, last)
    rewriter.forget_shapes([result.source()])
    if form == "kept":
        rewriter.resize_port(result, [None, 1, vocabulary])
    else:
        if form == "squeezed":
            rewriter.redirect(result, 0, write.op("Squeeze", result.source(), axes=[1]))
        rewriter.resize_port(result, [None, vocabulary, -1])
    rewriter.finish()
    return model
