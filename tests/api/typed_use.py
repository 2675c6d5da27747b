"""A program that uses the API, which `make types` checks: an ignored error that is none fails it."""

from typing import Any

import graphpass
from graphpass.verify import compare_within

outcome: graphpass.Outcome = graphpass.convert("model.onnx", "out", "cpu", proof=graphpass.Proof(steps=2))
comparison: graphpass.Comparison = graphpass.verify("model.onnx", "out", steps=2)
told: dict[str, Any] = graphpass.inspect("out").to_json()
holds: bool = graphpass.check("out", "cpu").holds
same: bool = graphpass.diff("model.onnx", "out").same and callable(compare_within)
folder = graphpass.split("model.onnx", "parts", prompt=8, capacity=16).output
code: int = graphpass.run_matrix("graphpass.toml", select=["llama:*"]).exit_code

graphpass.inspekt  # type: ignore[attr-defined]  # noqa: B018
graphpass.verify("model.onnx", "out", steps="two")  # type: ignore[arg-type]
graphpass.convert("model.onnx", "out", "cpu", budget=None)  # type: ignore[call-arg]
