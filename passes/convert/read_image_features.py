"""The pass `read-image-features`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy

from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import PreconditionError
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect
from graphpass.ir.values import REALS, fixed_size

#: Name under which onnxruntime-genai feeds features (``config.h``).
_FEATURES = "image_features"


@dataclass(frozen=True)
class ReadImageFeatures(Pass[Model]):
    """Replace embeddings of image tokens by rows of a new input.

    onnxruntime-genai feeds the output of a model of images to the embedding model. Exports for transformers.js embed
    ids only, and programs replace rows outside the models. The rows are used in order, also across a batch. Without
    image tokens the input may have no rows.

    Options:
        token: Id of image tokens, ``image_token_id`` or ``image_token_index`` in config.json.

    Shapes:
        ``image_features`` has any rank and the type and last size of the embeddings

    Before:
        Gather(table, ids) -> inputs_embeds
    After:
        Select(ids == token, Gather(image_features, count of image tokens), Gather(table, ids)) -> inputs_embeds

    Raises:
        PreconditionError: GP349, the id is missing, or the model has another input than ids, or another output than
            embeddings of a fixed size.
    """

    name: ClassVar[str] = "read-image-features"
    dialect: ClassVar[Dialect | None] = "onnx"

    token: int | None = None

    def run(self, model: Model) -> Done | Skipped:
        graph = model.graph
        if _FEATURES in graph.parameters:
            return Skipped(f"the model has an input {_FEATURES}")
        if self.token is None:
            raise PreconditionError("GP349", "the id of image tokens is missing", f"write {self.name}{{token=ID}}")
        parameters, results = list(graph.parameters.values()), list(graph.of_op("Result"))
        embeddings = results[0].source() if len(results) == 1 else None
        size = None if embeddings is None or embeddings.rank != 3 else fixed_size(embeddings, 2)
        is_embedder = len(parameters) == 1 and parameters[0].element_type in ("i32", "i64") and parameters[0].rank == 2
        if embeddings is None or size is None or not is_embedder or embeddings.element_type not in REALS:
            reason = "expected one input of ids [batch, length] and one output of embeddings [batch, length, size]"
            raise PreconditionError("GP349", reason, "name the model that computes embeddings")
        rewriter = model.rewriter()
        features = rewriter.input(_FEATURES, embeddings.element_type, None)
        write = rewriter.under(_FEATURES)
        is_image = write.op("Equal", write.convert(parameters[0], "i64"), self.token, label="is_image")
        # Row 0 is of zeros, so that a Gather without features is valid; ids of one axis count across the batch.
        flat = write.op("Reshape", write.convert(is_image, "i64"), [-1])
        places = write.op("Multiply", write.op("CumSum", flat, axis=0), flat, label="places")
        zeros = write.convert(write.constant(numpy.zeros([1, size], numpy.float32)), embeddings.element_type)
        rows = write.op("Concat", zeros, write.op("Reshape", features, [-1, size]), axis=0, label="rows")
        chosen = write.op("Reshape", write.op("Gather", rows, places, axis=0), write.op("ShapeOf", embeddings))
        mixed = write.op("Select", write.op("Unsqueeze", is_image, axes=[2]), chosen, embeddings, label="mixed")
        (port,) = model.outputs
        rewriter.drop(results)
        rewriter.output(port.name, mixed, port.element_type, port.shape or ())
        rewriter.finish()
        return Done({"inputs added": 1})
