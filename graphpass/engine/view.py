"""Views: how other programs classify the caches of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.model import Model
from graphpass.ir.types import Port

Sees = Literal["kv", "linear", "cross", "nothing"]


@dataclass(frozen=True, slots=True)
class CacheView:
    """One cache as another program classifies it.

    Attributes:
        cache: Name of the cache.
        sees: The kind that the program assigns; ``nothing`` if it does not find the cache.
    """

    cache: str
    sees: Sees


@dataclass(frozen=True, slots=True)
class View:
    """All caches of a model as another program classifies them.

    Attributes:
        consumer: Name of the program.
        verdict: The comparison with the inventory:

            - ``agrees``: the program classifies all caches correctly.
            - ``misreads``: it classifies a cache wrongly, misses one, or refuses the model.
            - ``cannot tell``: its rule requires another form of model, or the kind of a cache is unknown.
            - ``not applicable``: the program does not support models of this form.
        reasons: One sentence each, with the program as implied subject; includes remarks of a view that agrees.
        caches: In the inventory's order; empty if the rule was not applied.
    """

    consumer: str
    verdict: Literal["agrees", "misreads", "cannot tell", "not applicable"]
    reasons: tuple[str, ...] = ()
    caches: tuple[CacheView, ...] = ()


def judged(
    consumer: str,
    inventory: Inventory,
    sees: Mapping[str, Sees],
    problems: Iterable[str],
    *,
    doubts: Iterable[str] = (),
    remarks: Iterable[str] = (),
) -> View:
    """Return the view of a program whose rule was applied.

    Args:
        consumer: Name of the program.
        inventory: The caches as graphpass classifies them.
        sees: The kind that the program assigns to each cache, without caches that it does not find.
        problems: Errors of the program.
        doubts: Conditions outside the model that decide whether the program is right.
        remarks: Further notes.
    """
    problems = list(dict.fromkeys(problems))
    unknown = [cache.name for cache in inventory.caches if cache.kind == "unknown"]
    doubts = list(doubts)
    if unknown:
        doubts.append(f"cannot determine correctness for {listed(unknown)}: the evidence is not conclusive")
    caches = tuple(CacheView(cache.name, sees.get(cache.name, "nothing")) for cache in inventory.caches)
    verdict: Literal["agrees", "misreads", "cannot tell"] = (
        "misreads" if problems else "cannot tell" if doubts else "agrees"
    )
    return View(consumer, verdict, (*problems, *doubts, *remarks), caches)


def without_caches(consumer: str, inventory: Inventory) -> View | None:
    """Return the view of a model without caches; ``None`` if the model has caches.

    Args:
        consumer: Name of the program.
        inventory: The caches of the model.

    Returns:
        The view ``not applicable``, or ``None``.
    """
    return None if inventory.caches else View(consumer, "not applicable", ("the model has no caches",))


def not_onnx(consumer: str, model: Model, inventory: Inventory) -> View | None:
    """Return an ONNX-only program's view of IR; ``None`` for ONNX models with caches.

    Args:
        consumer: Name of the program.
        model: The model.
        inventory: The caches of the model.

    Returns:
        The view ``not applicable``, or ``None``.
    """
    if model.dialect != "onnx":
        return View(consumer, "not applicable", ("reads ONNX models",))
    return without_caches(consumer, inventory)


def not_stateful_ir(consumer: str, model: Model, inventory: Inventory, *, finds: str, cross: str) -> View | None:
    """Return the view of a program that reads stateful IR only; ``None`` for such IR.

    Args:
        consumer: Name of the program.
        model: The model.
        inventory: The caches of the model.
        finds: The attribute of variables by which the program finds caches: ``names``.
        cross: Why the program is not for models with cross-attention caches.
    """
    if (empty := without_caches(consumer, inventory)) is not None:
        return empty
    if model.dialect != "openvino":
        return View(consumer, "cannot tell", ("reads OpenVINO IR only: convert the model first",))
    if not inventory.stateful:
        reason = f"finds caches by the {finds} of variables, and a stateless model has none"
        return View(consumer, "cannot tell", (reason,))
    if inventory.of_kind("cross"):
        return View(consumer, "not applicable", (cross,))
    return None


def is_mistaken(cache: Cache, seen: Sees) -> bool:
    """Return whether ``seen`` is wrong for ``cache``; ``linear`` is accepted for recurrent states.

    Args:
        cache: The cache as graphpass classifies it.
        seen: The kind that the program assigns.

    Returns:
        Whether the program is wrong.
    """
    if cache.kind == "other":
        return seen not in ({"nothing", "linear"} if cache.role == "recurrent" else {"nothing"})
    return cache.kind in {"kv", "linear"} and seen != cache.kind


def listed(names: Iterable[str]) -> str:
    """Return names as part of a sentence: ``a``, ``a and b``, ``a and 23 more``."""
    first, *others = names
    if not others:
        return first
    return f"{first} and {others[0]}" if len(others) == 1 else f"{first} and {len(others)} more"


def names_of(model: Model, ports: tuple[Port, ...]) -> tuple[tuple[Port, frozenset[str]], ...]:
    """Return each port of ``ports`` with all names that address it.

    Args:
        model: The model.
        ports: Inputs or outputs of the model.

    Returns:
        Pairs in the order of ``ports``.
    """
    if model.dialect == "onnx":
        return tuple((port, frozenset({port.name})) for port in ports)

    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.dialects.openvino.ports import port_name

    assert isinstance(model, OpenVINOModel)
    aliases = {port_name(port): port.get_names() for port in (*model.ov_model.inputs, *model.ov_model.outputs)}
    return tuple((port, frozenset({port.name, *aliases.get(port.name, ())})) for port in ports)
