"""The pass `demote-to-f16`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.passes.convert.demotion import Demotion


@dataclass(frozen=True)
class DemoteToF16(Demotion):
    """Compute hidden states in f16, and keep weights and caches in it.

    In f32 stay angles, masks and biases, which are rounded once they are computed; softmax with the scores that it
    reads; decomposed norms with their reductions; states of recurrences; operators that have no f16; and all that the
    model itself converts to f32. Fused norms and attention sum in f32 inside. Biases are cut to the range of f16 first,
    so that rows that are masked whole stay finite. Casts stand at these borders, one for each tensor.

    Past and present keys, values and windows of columns become f16; other inputs and outputs, logits among them, keep
    their type. Each weight is read and rounded once, a piece at a time, and equal ones are stored once; those of data
    files go to a new one.

    Options:
        cross: Let caches of cross attention be f16 as well, those that a decoder reads and those that an encoder fills:
            both have to be demoted so.

    Shapes:
        any

    Before:
        MatMul(x (f32), weight (f32)) -> Softmax -> y (f32)
    After:
        MatMul(x (f16), weight (f16)) -> Cast(f32) -> Softmax -> Cast(f16) -> y (f16)

    Raises:
        ReadError: GP105, a weight's data is missing.
        UnsupportedError: GP340, the model is of an opset before 13; GP398, a number of a weight is beyond f16.
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "demote-to-f16"
    half = "f16"
