"""Random ONNX graphs of operators that move, select, compare and sum elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

#: A size: of rows ``b``, of tokens ``n`` plus a number, or fixed.
Size = str | int | tuple[str, int]

INPUTS = "float[b, n, 4] x, float[b, n, 4] z, int64[b, n, 4] i, bool[b, n, 4] m"
_STATES: tuple[Size, ...] = ("b", "n", 4)
_TO_THE_END = 2**62

#: Slices of the tokens: start, end and step, and the size of the result.
_CUTS: list[tuple[tuple[int, int, int], Size]] = [
    ((0, 3, 1), 3),
    ((2, _TO_THE_END, 1), ("n", -2)),
    ((1, -1, 1), ("n", -2)),
    ((-1, -_TO_THE_END, -1), "n"),
]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph: real, integer or boolean (``f``, ``i``, ``b``)."""

    name: str
    kind: str
    sizes: tuple[Size, ...]

    def fixed(self, random: Random) -> int | None:
        """Return an axis of fixed size; ``None`` without one."""
        axes = [axis for axis, size in enumerate(self.sizes) if isinstance(size, int)]
        return random.choice(axes) if axes else None

    def resized(self, axis: int, size: Size) -> tuple[Size, ...]:
        """Return the sizes with another size of one axis."""
        return (*self.sizes[:axis], size, *self.sizes[axis + 1 :])


class RandomGraph:
    """A graph whose operators are chosen at random; the last tensor is its result.

    Attributes:
        lines: The operators in ONNX's text form.
        tensors: The tensors, in order.
    """

    def __init__(self, seed: int, operators: int) -> None:
        self.random, self.lines = Random(seed), list[str]()
        kinds = (("x", "f"), ("z", "f"), ("i", "i"), ("m", "b"))
        self.tensors = [Tensor(name, kind, _STATES) for name, kind in kinds]
        while len(self.tensors) < len(kinds) + operators:
            self.random.choice(_STEPS)(self)

    def _line(self, call: str) -> str:
        self.lines.append(f"t{len(self.lines)} = {call}")
        return f"t{len(self.lines) - 1}"

    def _add(self, call: str, kind: str, sizes: Sequence[Size]) -> None:
        self.tensors.append(Tensor(self._line(call), kind, tuple(sizes)))

    def _integers(self, *values: int) -> str:
        return self._line(f"Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()")

    def _integer(self, value: int) -> str:
        return self._line(f"Constant <value_int = {value}> ()")

    def _real(self, value: float) -> str:
        return self._line(f"Constant <value_float = {float(value)}> ()")

    def _any(self, kinds: str) -> Tensor:
        return self.random.choice([tensor for tensor in self.tensors if tensor.kind in kinds][-6:])

    def _like(self, tensor: Tensor, but: int | None = None) -> Tensor:
        """Return a tensor of the same type and sizes, except along one axis."""
        pairs = ((other, zip(other.sizes, tensor.sizes, strict=False)) for other in self.tensors)
        return self.random.choice(
            [
                other
                for other, sizes in pairs
                if other.kind == tensor.kind
                and len(other.sizes) == len(tensor.sizes)
                and all(left == right or axis == but for axis, (left, right) in enumerate(sizes))
            ]
        )

    def compute(self) -> None:
        own = self._any("fi")
        call = self.random.choice(["Add", "Sub", "Mul", "Max", "Min"])
        self._add(f"{call} ({own.name}, {self._like(own).name})", own.kind, own.sizes)

    def compute_with_a_number(self) -> None:
        own, value = self._any("fi"), self.random.choice([0, 1, -1, 2, 3])
        constant = self._real(value / 2) if own.kind == "f" else self._integer(value)
        call = self.random.choice(["Add", "Sub", "Mul", "Max", "Min"])
        self._add(f"{call} ({own.name}, {constant})", own.kind, own.sizes)

    def map(self) -> None:
        own, call = self._any("f"), self.random.choice(["Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Floor", "Sign"])
        self._add(f"{call} ({own.name})", "f", own.sizes)

    def cast(self) -> None:
        own = self._any("ib")
        self._add(f"Cast <to = 1> ({own.name})", "f", own.sizes)

    def compare(self) -> None:
        own, call = self._any("fi"), self.random.choice(["Less", "Greater", "Equal", "LessOrEqual"])
        self._add(f"{call} ({own.name}, {self._like(own).name})", "b", own.sizes)

    def choose(self) -> None:
        own, condition = self._any("fi"), self._any("b")
        if own.sizes == condition.sizes:
            self._add(f"Where ({condition.name}, {own.name}, {self._like(own).name})", own.kind, own.sizes)

    def count(self) -> None:
        own = self._any("fib")
        axis = self.random.randrange(len(own.sizes))
        sizes = self._line(f"Shape ({own.name})")
        size = self._line(f"Gather <axis = 0> ({sizes}, {self._integer(axis)})")
        places = self._line(f"Range ({self._integer(0)}, {size}, {self._integer(1)})")
        others = [other for other in range(len(own.sizes)) if other != axis]
        column = self._line(f"Unsqueeze ({places}, {self._integers(*others)})") if others else places
        self._add(f"Expand ({column}, {sizes})", "i", own.sizes)

    def transpose(self) -> None:
        own = self._any("fib")
        order = self.random.sample(range(len(own.sizes)), len(own.sizes))
        self._add(f"Transpose <perm = {order}> ({own.name})", own.kind, [own.sizes[axis] for axis in order])

    def slice(self) -> None:
        own = self._any("fi")
        axis = self.random.randrange(len(own.sizes))
        size = own.sizes[axis]
        if isinstance(size, int):
            start, end = sorted(self.random.sample(range(size + 1), 2))
            bounds, result = (start - size * self.random.randint(0, 1) if start else 0, end, 1), end - start
        elif size == "n":
            bounds, result = self.random.choice(_CUTS)
        else:
            return
        start, end, step = (self._integers(bound) for bound in bounds)
        call = f"Slice ({own.name}, {start}, {end}, {self._integers(axis)}, {step})"
        self._add(call, own.kind, own.resized(axis, result))

    def concatenate(self) -> None:
        own = self._any("fib")
        axis = own.fixed(self.random)
        if axis is None:
            return
        other = self._like(own, but=axis)
        if isinstance(other.sizes[axis], int) and (size := other.sizes[axis] + own.sizes[axis]) < 20:
            self._add(f"Concat <axis = {axis}> ({own.name}, {other.name})", own.kind, own.resized(axis, size))

    def split_axis(self) -> None:
        own = self._any("fi")
        axis = own.fixed(self.random)
        if axis is None or own.sizes[axis] % 2 or len(own.sizes) > 4:
            return
        shape = self._line(f"Shape ({own.name})")
        sizes = [
            self._integers(size) if isinstance(size, int) else self._line(f"Gather ({shape}, {self._integers(place)})")
            for place, size in enumerate(own.sizes)
        ]
        sizes[axis : axis + 1] = [self._integers(2), self._integers(own.sizes[axis] // 2)]
        target = self._line(f"Concat <axis = 0> ({', '.join(sizes)})")
        parts = [*own.sizes[:axis], 2, own.sizes[axis] // 2, *own.sizes[axis + 1 :]]
        self._add(f"Reshape ({own.name}, {target})", own.kind, parts)

    def gather(self) -> None:
        own = self._any("fi")
        axis = own.fixed(self.random)
        if axis is not None:
            count = self.random.randint(1, 4)
            places = self._integers(*self.random.choices(range(-own.sizes[axis], own.sizes[axis]), k=count))
            self._add(f"Gather <axis = {axis}> ({own.name}, {places})", own.kind, own.resized(axis, count))

    def tile(self) -> None:
        own = self._any("f")
        axis = own.fixed(self.random)
        if axis is not None and own.sizes[axis] < 9:
            times = self._integers(*(2 if axis == other else 1 for other in range(len(own.sizes))))
            self._add(f"Tile ({own.name}, {times})", "f", own.resized(axis, 2 * own.sizes[axis]))

    def pad(self) -> None:
        own = self._any("f")
        axis = own.fixed(self.random)
        if axis is not None:
            ends = [0] * 2 * len(own.sizes)
            ends[axis], ends[axis + len(own.sizes)] = self.random.randint(0, 2), 1
            size = own.sizes[axis] + ends[axis] + 1
            self._add(f"Pad ({own.name}, {self._integers(*ends)})", "f", own.resized(axis, size))

    def reduce(self) -> None:
        own = self._any("f")
        axis = self.random.randrange(len(own.sizes))
        call = self.random.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceSumSquare", "ReduceL1"])
        self._add(f"{call} ({own.name}, {self._integers(axis)})", "f", own.resized(axis, 1))

    def accumulate(self) -> None:
        own, axis = self._any("fi"), self._integer(self.random.randint(0, 1))
        self._add(f"CumSum ({own.name}, {axis})", own.kind, own.sizes)

    def share(self) -> None:
        own = self._any("f")
        self._add(f"Softmax <axis = {self.random.randrange(len(own.sizes))}> ({own.name})", "f", own.sizes)

    def find_largest(self) -> None:
        own = self._any("f")
        axis = self.random.randrange(len(own.sizes))
        call = self.random.choice(["ArgMax", "ArgMin"])
        self._add(f"{call} <axis = {axis}> ({own.name})", "i", own.resized(axis, 1))

    def sort(self) -> None:
        own = self._any("f")
        axis = own.fixed(self.random)
        if axis is not None:
            count = self.random.randint(1, own.sizes[axis])
            counts, place = self._integers(count), len(self.lines)
            self.lines.append(f"t{place}, p{place} = TopK <axis = {axis}> ({own.name}, {counts})")
            self.tensors.append(Tensor(f"t{place}", "f", own.resized(axis, count)))


_STEPS = [step for name, step in vars(RandomGraph).items() if not name.startswith("_")]
