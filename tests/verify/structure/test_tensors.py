"""Tensors of unknown rank."""

import onnx.parser

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures

OPEN = """
<ir_version: 10, opset_import: ["" : 21]>
scores (float[B, N] x, int64[R] dims, float[B, 1, N] mask) => (float[B, H, N] y) {
  open = Reshape(x, dims)
  sizes = Shape(open)
  last = Constant<value_ints = [-1]>()
  heads = Constant<value_ints = [-1, 4]>()
  length = Gather(sizes, last)
  target = Concat<axis = 0>(heads, length)
  rows = Reshape(open, target)
  y = Add(rows, mask)
}
"""


def test_sizes_assumed_of_an_open_rank_are_compared():
    texts = OPEN, OPEN.replace("Add(rows, mask)", "Sub(rows, mask)")
    found = compare_structures(*(OnnxModel(onnx.parser.parse_model(text)) for text in texts))
    assert found is not None
    assert found.regions
