"""Draft with a head on hidden states of the target, as EAGLE-3 and MTP do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.types import shape_text
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.inputs import Array
from graphpass.runtime.speculative.drafts import check_positive, continuations

Head: TypeAlias = Callable[[NDArray[np.int64], Array], tuple[Array, Array]]
"""A function from pairs of a state and the token after it to the next token.

Maps tokens int64 [n] and states f32 [n, features] to logits [n, vocabulary] of the tokens after these, and states
[n, features] for the next draft token. Row i may depend on rows 0 to i; only the last row is used.
"""


class HiddenStateDraft:
    """Drafts of a head on the hidden states of accepted tokens.

    For the first draft token, the head reads the target's states and the tokens after them. For later ones, it reads
    its own states and draft tokens.

    Examples:
        A head of one product:

        >>> import numpy
        >>> from graphpass.runtime import open_session
        >>> from graphpass.runtime.speculative import HiddenStateDraft, speculate
        >>> from graphpass.testing import run, tiny_model
        >>> session = open_session(run(tiny_model("llama"), "expose-hidden-states"))
        >>> projection = numpy.eye(32, 64, dtype=numpy.float32)
        >>> draft = HiddenStateDraft(lambda tokens, states: (states @ projection, states))
        >>> len(speculate(session, [1, 5, 9], draft, count=4).tokens)
        4
    """

    def __init__(
        self,
        head: Head,
        *,
        length: int = 4,
        width: int = 1,
        context: int = 1,
        fuse: Callable[[Array], Array] | None = None,
    ) -> None:
        """Begin without text.

        Args:
            head: A function, or a `ModelHead`.
            length: Number of tokens to draft, one after another.
            width: Number of most likely tokens to draft at each position; only the first is continued. With more than
                one, the draft is a tree.
            context: Number of last positions fed to the head at once; a head with attention attends to these.
            fuse: Maps the states of all exposed layers, f32 [n, layers * hidden] in order of the layers, to features
                [n, features], as the first projection of EAGLE-3 does. By default the features are these states.

        Raises:
            UsageError: GP263, a number is not positive.
        """
        check_positive(length=length, width=width, context=context)
        self._head, self._fuse = head, fuse
        self._length, self._width, self._context = length, width, context
        self._states: Array | None = None

    def observe(self, first: int, states: Mapping[int, Array]) -> None:
        """See `StateDrafter.observe`."""
        joined = np.concatenate([states[layer] for layer in sorted(states)], axis=-1)[-self._context :]
        features = joined if self._fuse is None else self._fuse(joined)
        if first:
            assert self._states is not None
            features = np.concatenate([self._states, features])
        self._states = self._last(features)

    def propose(self, history: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return prefixes of the greedy continuation, with ``width`` choices of the last token."""
        assert self._states is not None
        states = self._states
        tokens = np.asarray(history[-len(states) :], np.int64)
        logits, made = self._head(tokens, states)

        def feed(token: int) -> Array:
            nonlocal tokens, states, made
            tokens = self._last(np.append(tokens, token))
            states = self._last(np.concatenate([states, made[-1:]]))
            after, made = self._head(tokens, states)
            last: Array = after[-1]
            return last

        return continuations(logits[-1], feed, self._length, self._width)

    def _last(self, rows: Array) -> Array:
        return rows[-self._context :].copy()


class ModelHead:
    """A head that is a small model of either dialect.

    Its inputs are ``input_ids`` [batch, n] and states [batch, n, features]. Its outputs are ``logits``
    [batch, n, vocabulary], over the ids of the target, and states [batch, n, features]. States may have any name.

    Examples:
        >>> import numpy
        >>> from graphpass.runtime.speculative import ModelHead
        >>> from graphpass.testing import parse_model
        >>> head = ModelHead(parse_model('''%input_ids = Parameter : i64[batch, n]
        ... %states = Parameter : f32[batch, n, 4]
        ... %logits = Relu(%states) : f32[batch, n, 4]
        ... %next_states = Abs(%states) : f32[batch, n, 4]
        ... Result(%logits) {name=logits}
        ... Result(%next_states) {name=next_states}'''))
        >>> logits, states = head(numpy.array([3]), numpy.full((1, 4), -2.0, numpy.float32))
        >>> logits.tolist(), states.tolist()
        ([[0.0, 0.0, 0.0, 0.0]], [[2.0, 2.0, 2.0, 2.0]])
    """

    def __init__(self, model: Model, *, device: str = "CPU", exact: bool = True) -> None:
        """Open the head in the runtime of its dialect.

        Args:
            model: The head, from `graphpass.load`.
            device: The OpenVINO device. ONNX Runtime runs on ``"CPU"`` only.
            exact: Whether to compute in f32, as `graphpass.runtime.open_session`.

        Raises:
            UnsupportedError: GP321, the runtime refuses the model; GP378, it has other inputs or outputs.
            UsageError: GP240, ONNX Runtime has no such device.
        """
        inputs = {port.name: port for port in model.inputs}
        outputs = {port.name: port for port in model.outputs}
        tokens, logits = inputs.pop("input_ids", None), outputs.pop("logits", None)
        if tokens is None or logits is None or len(inputs) != 1 or len(outputs) != 1:
            taken, returned = (
                ", ".join(f"{port.name} {shape_text(port.shape)}" for port in ports)
                for ports in (model.inputs, model.outputs)
            )
            message = f"expected inputs input_ids and states, outputs logits and states, got {taken}, and {returned}"
            raise UnsupportedError("GP378", message, "export the head with these, or wrap it in a function")
        (self._states,), (self._made,) = inputs, outputs
        self._request = open_request(model, Device(device, exact, {}))

    def __call__(self, tokens: NDArray[np.int64], states: Array) -> tuple[Array, Array]:
        """See `Head`.

        Returns:
            Logits [length, vocabulary] and states [length, width], in the model's type.

        Raises:
            UnsupportedError: GP322, the runtime failed.
        """
        results = self._request.infer({"input_ids": tokens[None], self._states: states[None]})
        return results["logits"][0], results[self._made][0]
