"""`Target`: a runtime and device for which models are converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Condition, Pass
from graphpass.engine.split import Split
from graphpass.engine.view import View
from graphpass.errors import PassFailedError, UsageError
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect

Padding: TypeAlias = Literal["left", "right"]
"""The side of a batch's shorter rows that has padding."""


@dataclass(frozen=True)
class Target(ABC):
    """A runtime and device for which models are converted.

    Subclasses are frozen dataclasses with the target's options as fields, set as those of a pass:
    ``--target gpu{cache=reorder}``. Only `pipeline` is required. Optional methods:

    - `predict`: the runtime's rules, checked by ``graphpass check`` and after each conversion.
    - `observe`: a trial that confirms the rules.
    - `view`: the runtime's classification of caches, for ``graphpass inspect``.

    Attributes:
        name: Name on the command line.
        description: Description in one line.
        dialect: The dialect that the runtime reads.
        output_file: Name of the model file.
        part_files: Names of the files of an encoder and its decoder.
        contract: Conditions that every result must meet.
        shards_weights: Whether weights are stored in data files of limited size.
        needs_parts: Whether a language model is useless without the models that compute its embeddings.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    dialect: ClassVar[Dialect]
    output_file: ClassVar[str]
    part_files: ClassVar[tuple[str, str]] = ("openvino_encoder_model.xml", "openvino_decoder_model.xml")
    contract: ClassVar[tuple[Condition, ...]] = ()
    shards_weights: ClassVar[bool] = False
    needs_parts: ClassVar[bool] = False

    @abstractmethod
    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes that convert ``model``, which must not be modified.

        A pass that does not support the model raises when it runs.
        """

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """Return the passes that convert the encoder of a decoder; see `pipeline`.

        Args:
            model: The encoder.
            first: The file of the decoder for the first step, if separate.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder.
        """
        raise self._takes_no_encoder()

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """Return the passes that convert the decoder of an encoder; see `pipeline`.

        Args:
            model: The decoder for all steps, or for all steps but the first.
            first: The file of the decoder for the first step, if separate.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder.
        """
        raise self._takes_no_encoder()

    def _takes_no_encoder(self) -> UsageError:
        message = f"target {self.name} does not support models of an encoder and a decoder"
        return UsageError("GP226", message, "targets cpu, gpu, ort and ort-genai support them")

    @property
    def gives_up_fusion(self) -> bool:
        """Return whether an option prevents fusion in the runtime in favour of another property."""
        return False

    @property
    def made_for(self) -> str | None:
        """Return the only runtime version that supports the results, if there is one."""
        return None

    @property
    def reads(self) -> tuple[Path, ...]:
        """Return files outside the input that the result depends on."""
        return ()

    @property
    def split(self) -> Split | None:
        """Return the sizes of the pair of static models; ``None`` without a split."""
        return None

    @property
    def proving_device(self) -> str:
        """Return the OpenVINO device that runs results for the comparison with the input."""
        return "CPU"

    @property
    def reads_padding(self) -> Padding:
        """Return the side of padding that results must process correctly."""
        return "left"

    def file_for(self, model: Model) -> str:  # noqa: ARG002
        """Return the path of the model file within the output folder."""
        return self.output_file

    def files(self, model: Model, source: Path | None) -> dict[str, str]:  # noqa: ARG002
        """Return further text files that the runtime reads with ``model``, by name.

        Args:
            model: The result.
            source: A file of the input, whose folder has the configuration files.
        """
        return {}

    def files_beside(self, encoder: Model, decoder: Model, source: Path | None) -> dict[str, str]:  # noqa: ARG002
        """Return further text files that the runtime reads with an encoder and its decoder.

        Args:
            encoder: The resulting encoder.
            decoder: The resulting decoder.
            source: See `files`.

        Returns:
            As `files`.
        """
        return self.files(decoder, source)

    def finish(self, folder: Path, files: Sequence[str]) -> None:  # noqa: B027 - optional hook
        """Write further files that the runtime itself creates.

        Args:
            folder: The staged folder.
            files: Names of the models in it.

        Raises:
            UnsupportedError: GP321, the runtime is not installed, or refuses a model.
        """

    def require_contract(self, model: Model) -> None:
        """Check the conditions of the contract.

        Raises:
            PassFailedError: GP405, a condition does not hold.
        """
        require(self.contract, model, self.name)

    @property
    def has_rules(self) -> bool:
        """Return whether the target implements `predict`."""
        return type(self).predict is not Target.predict

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG002
        """Predict how the runtime treats ``model``, without running it.

        Args:
            model: A model of the target's dialect.
            inventory: The caches of the model.

        Returns:
            Findings about the model as a whole, then by layer.

        Raises:
            UsageError: GP223, the target has no rules.
        """
        hint = "graphpass targets marks the targets that have rules"
        raise UsageError("GP223", f"target {self.name} has no rules", hint)

    def observe(self, model: Model) -> Observation | str:  # noqa: ARG002
        """Run the runtime on ``model``.

        Returns:
            The observation, or the reason why the runtime cannot be tried.
        """
        return f"target {self.name} has no trial"

    def predict_beside(self, encoder: Model, decoder: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG002
        """Predict how the runtime treats a decoder with an encoder, or a pair.

        Args:
            encoder: The resulting encoder, or the prefill model of a pair.
            decoder: The resulting decoder, or the decode model of a pair.
            inventory: The caches of the decoder.

        Returns:
            As `predict`.
        """
        return self.predict(decoder, inventory)

    def observe_beside(self, encoder: Model, decoder: Model) -> Observation | str:  # noqa: ARG002
        """Run the runtime on a decoder with its encoder, or on a pair.

        Args:
            encoder: The resulting encoder, or the prefill model of a pair.
            decoder: The resulting decoder, or the decode model of a pair.

        Returns:
            As `observe`.
        """
        return self.observe(decoder)

    def view(self, model: Model, inventory: Inventory) -> View | None:  # noqa: ARG002
        """Return the runtime's view of the caches of ``model``; ``None`` without a rule.

        Args:
            model: The model.
            inventory: The caches of the model.

        Returns:
            The view.
        """
        return None


def require(contract: Iterable[Condition], model: Model, target: str) -> None:
    """Check the conditions of a contract; see `Target.require_contract`.

    Args:
        contract: The conditions.
        model: The result of a conversion.
        target: Name of the target, for the message.

    Raises:
        PassFailedError: GP405, a condition does not hold.
    """
    for condition in contract:
        if missing := condition.missing(model):
            reason = f"target {target} requires {condition.name!r}, but {missing}"
            raise PassFailedError("GP405", reason, condition.hint)
