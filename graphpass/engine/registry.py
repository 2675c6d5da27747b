"""Registry of passes and targets by name, imported on first use.

Groups of entry points:

- ``graphpass.passes``, ``graphpass.targets``: one class each, under its name.
- ``graphpass.catalogues``: a mapping from names of passes to the modules that define them. Listing a catalogue imports
  its module, so this module should import nothing.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from graphpass.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib import metadata

    from graphpass.engine.passes import Pass
    from graphpass.engine.target import Target


Class = TypeVar("Class", bound=type)
PassClass = TypeVar("PassClass", bound="type[Pass[Any]]")


_CATALOGUES = "graphpass.catalogues"


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Class]):
    """One registration of a name: by entry point, catalogue, or `register`."""

    name: str
    module: str
    owner: str
    load: Callable[[], Class]


class _Kind(Generic[Class]):
    """All passes, or all targets."""

    def __init__(self, word: str, unknown: str, base: Callable[[], type]) -> None:
        self.word = word
        self.plural = "passes" if word == "pass" else f"{word}s"
        self.group = f"graphpass.{self.plural}"
        self.unknown = unknown
        self.base = base
        self.registered: dict[str, _Entry[Class]] = {}

    def entries(self) -> list[_Entry[Class]]:
        path = tuple(sys.path)
        catalogued = _catalogued(path) if self.word == "pass" else ()
        return [*catalogued, *_installed(self.group, path), *self.registered.values()]

    def names(self) -> tuple[str, ...]:
        entries = self.entries()
        for entry in entries:
            self.check_unique(entry.name, entries)
        return tuple(sorted(entry.name for entry in entries))

    def check_unique(self, name: str, entries: list[_Entry[Class]]) -> None:
        owners = [entry for entry in entries if entry.name == name]
        if len(owners) > 1:
            who = " and ".join(f"{entry.owner} ({entry.module})" for entry in owners)
            raise UsageError(
                "GP220",
                f"{self.word} {name!r} is registered by several distributions: {who}",
                "uninstall or rename one of them",
            )

    def get(self, name: str) -> Class:
        entries = self.entries()
        self.check_unique(name, entries)
        for entry in entries:
            if entry.name == name:
                return self.load(entry)
        names = sorted({entry.name for entry in entries})
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"graphpass {self.plural} lists the installed ones"
        raise UsageError(self.unknown, f"unknown {self.word} {name!r}", hint)

    def load(self, entry: _Entry[Class]) -> Class:
        try:
            loaded = entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(
                "GP221",
                f"{self.word} {entry.name!r} of {entry.owner} cannot be imported from {entry.module}: {reason}",
                "fix or uninstall this distribution",
            ) from error
        self.check_class(entry, loaded)
        return loaded

    def check_class(self, entry: _Entry[Class], loaded: object) -> None:
        where = f"{entry.module} of {entry.owner}"
        if not (isinstance(loaded, type) and issubclass(loaded, self.base())):
            raise UsageError(
                "GP222", f"{where} is registered as {self.word} {entry.name!r}, but is not a {self.base().__name__}"
            )
        name = getattr(loaded, "name", None)
        if name != entry.name:
            raise UsageError("GP222", f"{where} is registered as {self.word} {entry.name!r}, but its name is {name!r}")


def _pass_base() -> type:
    from graphpass.engine.passes import Pass

    return Pass


def _target_base() -> type:
    from graphpass.engine.target import Target

    return Target


_PASSES: _Kind[type[Any]] = _Kind("pass", "GP211", _pass_base)
_TARGETS: _Kind[type[Any]] = _Kind("target", "GP215", _target_base)


@functools.lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:  # noqa: ARG001 - keys the cache
    # This import takes half of the module's import time, and printing help does not call this function.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


@functools.lru_cache(maxsize=8)
def _installed(group: str, path: tuple[str, ...]) -> tuple[_Entry[Any], ...]:
    # The owner of an entry point is read from a file of its distribution; the cache avoids repeated reads.
    return tuple(_entry(point, point.value, point.name, point.load) for point in _entry_points(group, path))


@functools.lru_cache(maxsize=8)
def _catalogued(path: tuple[str, ...]) -> tuple[_Entry[Any], ...]:
    entries: list[_Entry[Any]] = []
    for point in _entry_points(_CATALOGUES, path):
        try:
            catalogue = dict(point.load())
        except Exception:  # noqa: BLE001 - `get` raises this error for the entry point's name
            entries.append(_entry(point, point.value, point.name, point.load))
            continue
        entries += [
            _entry(point, module, name, functools.partial(_defined, module, name)) for name, module in catalogue.items()
        ]
    return tuple(entries)


def _entry(point: metadata.EntryPoint, module: str, name: str, load: Callable[[], Any]) -> _Entry[Any]:
    return _Entry(name, module, f"distribution {_distribution(point)}", load)


def _defined(module: str, name: str) -> object:
    imported = importlib.import_module(module)
    return next((value for value in vars(imported).values() if getattr(value, "name", None) == name), imported)


def _distribution(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "of unknown name"


def distributions() -> dict[str, str]:
    """Return the versions of all distributions with passes or targets, graphpass included, by name.

    A digest of the code follows the version, ``0.2.0+1f3870be274f``, because code also changes between releases.
    """
    from graphpass.engine.code import digest_of_code

    groups = (_CATALOGUES, _PASSES.group, _TARGETS.group)
    points = [point for group in groups for point in _entry_points(group, tuple(sys.path))]
    known = {point.dist.name: point.dist.version for point in points if point.dist is not None}
    modules: dict[str, set[str]] = {name: set() for name in known}
    for point in points:
        if point.dist is not None:
            modules[point.dist.name].add(point.module.partition(".")[0])
    return {name: f"{version}+{digest_of_code(modules[name])[:12]}" for name, version in known.items()}


def pass_names() -> tuple[str, ...]:
    """Return the names of all passes, without importing them.

    Returns:
        The names, sorted.

    Raises:
        UsageError: GP220, several packages register the same name.

    Examples:
        >>> import graphpass
        >>> "fuse-attention" in graphpass.pass_names()
        True
    """
    return _PASSES.names()


def get_pass(name: str) -> type[Pass[Any]]:
    """Return the class of a pass.

    Args:
        name: Its name, in kebab-case.

    Returns:
        The class; its fields are the options.

    Raises:
        UsageError: GP211, the name is unknown; GP220, several packages register it; GP221, its distribution cannot be
            imported; GP222, the registered object is not a pass with this name.

    Examples:
        >>> import graphpass
        >>> graphpass.get_pass("make-stateful").__name__
        'MakeStateful'
    """
    return _PASSES.get(name)


def register(pass_class: PassClass) -> PassClass:
    """Register a pass under its name in this process; usable as a decorator.

    Redefining a class in the same module replaces the earlier one, so a notebook cell can run twice.

    Args:
        pass_class: A frozen dataclass derived from `Pass`.

    Returns:
        ``pass_class``.

    Raises:
        UsageError: GP220, the name is registered already; GP222, the class is not a pass, has no name, or has a field
            that cannot be an option.

    Examples:
        >>> from dataclasses import dataclass
        >>> import graphpass
        >>> @graphpass.register
        ... @dataclass(frozen=True)
        ... class Mark(graphpass.Pass):
        ...     name = "doc-mark"
        ...
        ...     def run(self, model):
        ...         return graphpass.Skipped("an example")
        >>> graphpass.get_pass("doc-mark") is Mark
        True
    """
    from graphpass.engine.options import options_of

    module = f"{getattr(pass_class, '__module__', '?')}:{getattr(pass_class, '__qualname__', pass_class)}"
    name = getattr(pass_class, "name", None)
    if not isinstance(name, str):
        raise UsageError("GP222", f"{module} has no name", 'add a field to the class: name: ClassVar[str] = "my-pass"')
    entry: _Entry[type[Any]] = _Entry(name, module, "this program", lambda: pass_class)
    _PASSES.check_class(entry, pass_class)
    options_of(pass_class)
    others = [other for other in _PASSES.entries() if not (other.owner == entry.owner and other.module == module)]
    _PASSES.check_unique(name, [*others, entry])
    _PASSES.registered[name] = entry
    return pass_class


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, without importing them.

    Returns:
        The names, sorted.

    Raises:
        UsageError: GP220, several packages register the same name.

    Examples:
        >>> import graphpass
        >>> {"cpu", "ort"} <= set(graphpass.target_names())
        True
    """
    return _TARGETS.names()


def target_class(name: str) -> type[Target]:
    """Return the class of the target named ``name``.

    Raises:
        UsageError: GP215, the name is unknown; GP220 to GP222, as `get_pass`.
    """
    return _TARGETS.get(name)


def get_target(name: str) -> Target:
    """Return a target with default options.

    Args:
        name: Its name, ``"cpu"``.

    Returns:
        The target; ``Target.pipeline(model)`` returns its passes.

    Raises:
        UsageError: As `target_class`.

    Examples:
        >>> import graphpass
        >>> graphpass.get_target("ort").name
        'ort'
    """
    return target_class(name)()


def usable_targets() -> Iterator[Target]:
    """Yield all well-formed targets with default options, by name."""
    for name in sorted({entry.name for entry in _TARGETS.entries()}):
        with contextlib.suppress(UsageError):
            yield get_target(name)
