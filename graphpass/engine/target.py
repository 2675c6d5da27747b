"""Describe a runtime and device that models are made for."""

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
"""The side of shorter rows of a batch on which padding stands."""


@dataclass(frozen=True)
class Target(ABC):
    """Makes models for a runtime and device.

    Subclasses are frozen dataclasses; their fields are the target's options, written as those of a pass are:
    ``--target gpu{cache=reorder}``. Only `pipeline` must be implemented. A target with rules (`predict`) is checked by
    ``graphpass check`` and after each conversion; its trial (`observe`) confirms the rules, and its `view` joins those
    that ``graphpass inspect`` prints.

    Attributes:
        name: Its name on the command line.
        description: One line for people.
        dialect: The dialect that its runtime reads.
        output_file: Name of the model file that is written for it.
        part_files: Names of the files of an encoder and its decoder.
        contract: Conditions that hold for every model made for it.
        shards_weights: Whether weights are laid out in data files of limited size.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    dialect: ClassVar[Dialect]
    output_file: ClassVar[str]
    part_files: ClassVar[tuple[str, str]] = ("openvino_encoder_model.xml", "openvino_decoder_model.xml")
    contract: ClassVar[tuple[Condition, ...]] = ()
    shards_weights: ClassVar[bool] = False

    @abstractmethod
    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes that make ``model`` fit, which is only looked at.

        Passes refuse a model that they cannot take when they run.
        """

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """Return the passes that make the encoder beside a decoder fit; see `pipeline`.

        Args:
            model: The encoder.
            first: The file of the decoder for the first step, if that is another one.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder.
        """
        raise self._takes_no_encoder()

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """Return the passes that make a decoder beside an encoder fit; see `pipeline`.

        Args:
            model: The decoder for all steps but the first, or for all.
            first: The file of the decoder for the first step, if that is another one.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder.
        """
        raise self._takes_no_encoder()

    def _takes_no_encoder(self) -> UsageError:
        message = f"target {self.name} does not support models of an encoder and a decoder"
        return UsageError("GP226", message, "targets cpu, gpu and ort-genai support them")

    @property
    def gives_up_fusion(self) -> bool:
        """Return whether an option trades fusion in the runtime for something else."""
        return False

    @property
    def made_for(self) -> str | None:
        """Return the version of a runtime that alone takes its models, if any."""
        return None

    @property
    def split(self) -> Split | None:
        """Return sizes of the pair that the pipeline's result becomes, if it does."""
        return None

    @property
    def proving_device(self) -> str:
        """Return the OpenVINO device on which its models are compared with their input."""
        return "CPU"

    @property
    def reads_padding(self) -> Padding:
        """Return the side on which its models must read padding correctly."""
        return "left"

    def file_for(self, model: Model) -> str:  # noqa: ARG002
        """Return the path of the model file in the folder that is written for ``model``."""
        return self.output_file

    def files(self, model: Model, source: Path | None) -> dict[str, str]:  # noqa: ARG002
        """Return further text files that its runtime reads beside ``model``, by name.

        Args:
            model: The result.
            source: A file of the input, beside which configurations lie.
        """
        return {}

    def files_beside(self, encoder: Model, decoder: Model, source: Path | None) -> dict[str, str]:  # noqa: ARG002
        """Return further text files beside an encoder and its decoder.

        Returns:
            As `files`.
        """
        return self.files(decoder, source)

    def finish(self, folder: Path, files: Sequence[str]) -> None:  # noqa: B027 - most have nothing to do
        """Write further files of the runtime's own.

        Args:
            folder: The staged folder.
            files: Names of the models in it.

        Raises:
            UnsupportedError: GP321, the runtime is not installed, or refuses a model.
        """

    def require_contract(self, model: Model) -> None:
        """Check the conditions of the contract.

        Raises:
            PassFailedError: GP405, with the condition that does not hold.
        """
        require(self.contract, model, self.name)

    @property
    def has_rules(self) -> bool:
        """Return whether the target implements `predict`."""
        return type(self).predict is not Target.predict

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG002
        """Predict the runtime's treatment of ``model``, without trying it.

        Args:
            model: A model of the target's dialect.
            inventory: Its caches.

        Returns:
            Findings on the model as a whole first, then by layer.

        Raises:
            UsageError: GP223, the target has no rules.
        """
        hint = "graphpass targets marks the targets that have rules"
        raise UsageError("GP223", f"there are no rules for target {self.name}", hint)

    def observe(self, model: Model) -> Observation | str:  # noqa: ARG002
        """Run the runtime on ``model``.

        Returns:
            The observation, or the reason why the runtime cannot be tried.
        """
        return f"target {self.name} has no trial"

    def predict_beside(self, encoder: Model, decoder: Model, inventory: Inventory) -> tuple[Finding, ...]:  # noqa: ARG002
        """Predict the treatment of a decoder with an encoder, or of a pair.

        Returns:
            As `predict`.
        """
        return self.predict(decoder, inventory)

    def observe_beside(self, encoder: Model, decoder: Model) -> Observation | str:  # noqa: ARG002
        """Run the runtime on a decoder with its encoder, or on a pair.

        Returns:
            As `observe`.
        """
        return self.observe(decoder)

    def view(self, model: Model, inventory: Inventory) -> View | None:  # noqa: ARG002
        """Return the caches of ``model`` as the runtime sees them; ``None`` without a rule."""
        return None


def require(contract: Iterable[Condition], model: Model, target: str) -> None:
    """Check the conditions of a contract; see `Target.require_contract`.

    Raises:
        PassFailedError: GP405, a condition does not hold.
    """
    for condition in contract:
        if missing := condition.missing(model):
            reason = f"target {target} requires {condition.name!r}, but {missing}"
            raise PassFailedError("GP405", reason, condition.hint)
