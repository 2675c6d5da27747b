"""Metadata on the use of a static model, which its graph does not show."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.model import Model
from graphpass.storage.documents import read_json

_KEY = "phase"


@dataclass(frozen=True, slots=True)
class Phase:
    """Use of a model that the pass `make-static` created.

    Attributes:
        length: Number of new tokens in a step.
        past: Number of past slots.
        caches: The caches, with the shapes of their pasts. Presents of kind ``kv`` contain only the new positions.
    """

    length: int
    past: int
    caches: tuple[Cache, ...]

    def note(self, model: Model) -> None:
        """Store the phase in the metadata of ``model``."""
        caches = [
            {
                "kind": cache.kind,
                "role": cache.role,
                "layer": cache.layer,
                "axes": asdict(cache.axes),
                "past": cache.read,
                "present": cache.write,
            }
            for cache in self.caches
        ]
        text = json.dumps({"length": self.length, "past": self.past, "caches": caches}, separators=(",", ":"))
        model.write_note(_KEY, text)

    @classmethod
    def find(cls, model: Model) -> Phase | None:
        """Return the phase of ``model``; ``None`` without metadata of one.

        Raises:
            UnsupportedError: GP394, the metadata is invalid.
        """
        return None if model.read_note(_KEY) is None else cls.of(model)

    @classmethod
    def of(cls, model: Model) -> Phase:
        """Return the phase of ``model``, from its metadata.

        Raises:
            UnsupportedError: GP394, the metadata is missing or invalid.
        """
        text = model.read_note(_KEY)
        hint = "create both models with graphpass split, or with the pass make-static"
        if text is None:
            raise UnsupportedError("GP394", "the metadata of a prefill or decode model is missing", hint)
        ports = {port.name: port for port in model.inputs}
        try:
            content = read_json(text)
            caches = [
                Cache(
                    name=cache["past"],
                    kind=cache["kind"],
                    role=cache["role"],
                    layer=cache["layer"],
                    axes=Axes(**cache["axes"]),
                    shape=ports[cache["past"]].shape,
                    element_type=ports[cache["past"]].element_type,
                    read=cache["past"],
                    write=cache["present"],
                )
                for cache in content["caches"]
            ]
            return cls(int(content["length"]), int(content["past"]), tuple(caches))
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedError("GP394", "the model's metadata on its caches is invalid", hint) from error
