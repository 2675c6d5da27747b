"""Note the use of a model of static shapes, which its graph hides."""

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
    """Use of a model that the pass `make-static` made.

    Attributes:
        length: Number of new tokens of a run.
        past: Number of slots of the past.
        caches: With the shapes of their pasts. Presents of kind ``kv`` hold the new positions only.
    """

    length: int
    past: int
    caches: tuple[Cache, ...]

    def note(self, model: Model) -> None:
        """Note it in ``model``."""
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
        """Return the phase of ``model``, if noted; raise GP394 on a damaged note."""
        return None if model.read_note(_KEY) is None else cls.of(model)

    @classmethod
    def of(cls, model: Model) -> Phase:
        """Return the phase of ``model``; raise GP394 without a fitting note."""
        text = model.read_note(_KEY)
        hint = "make both models of a pair with graphpass split, or with the pass make-static"
        if text is None:
            raise UnsupportedError("GP394", "the model has no metadata of a prefill or a decode model", hint)
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
            raise UnsupportedError("GP394", "the model's metadata on its caches is damaged", hint) from error
