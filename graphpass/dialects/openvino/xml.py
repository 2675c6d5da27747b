"""Check an IR before OpenVINO reads it: OpenVINO's messages name neither file nor layer."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from xml.parsers import expat  # its hooks allow refusing DTDs and entities

from graphpass.errors import ReadError
from graphpass.storage.weight_file import GRANT_READ, lies_with

_OLDEST_VERSION = 10

#: Maximum depth of elements; each body adds three. OpenVINO 2026.4.1 reads 50 000 and overflows its stack at 200 000.
_DEEPEST = 1000

#: Bytes of XML that are read at a time.
_CHUNK = 2**20

_COPY_AGAIN = "export or copy the model again, both .xml and .bin"


def check_ir(path: Path) -> None:
    """Check that ``path`` is an IR, and that its ``.bin`` file contains all constants.

    Raises:
        ReadError: GP106, the ``.xml`` file is damaged or not an IR; GP107, the ``.bin`` file is missing, too short or
            not readable; GP113, the ``.bin`` file is a link to a file outside the folder.
    """
    reader = _Reader(path)
    reader.read()
    weights = path.with_suffix(".bin")
    if not reader.weights_end:
        return
    if not os.path.isfile(weights):  # also if permission is missing
        raise ReadError("GP107", f"{weights} is missing; {path.name} requires it", "copy it beside the .xml file")
    if not lies_with(weights, path):
        reason = f"{weights} is a link to {weights.resolve()}, outside the folder of {path.name}"
        raise ReadError("GP113", reason, "copy the file itself beside the .xml file")
    if not os.access(weights, os.R_OK):
        raise ReadError("GP107", f"{weights} cannot be read: {os.strerror(errno.EACCES)}", GRANT_READ)
    size = weights.stat().st_size
    if size < reader.weights_end:
        end = f"constant {reader.last_constant!r} of {path.name} ends at byte {reader.weights_end}"
        raise ReadError("GP107", f"{weights} is too short: {end}, the file has {size} bytes", _COPY_AGAIN)


def check_xml(path: Path) -> None:
    """Check that ``path`` is the graph of an IR, without weights.

    Raises:
        ReadError: GP106, the file is not the graph of an IR.
    """
    _Reader(path).read()


def string_constants(path: Path) -> list[tuple[int, int]]:
    """Return offset and size in bytes of string Constants in the ``.bin`` file.

    Raises:
        ReadError: GP106, the graph is damaged.
    """
    reader = _Reader(path)
    reader.read()
    return reader.strings


def openvino_words(error: Exception) -> str:
    """Return the message of an OpenVINO exception on one line, without C++ source positions."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith("Exception from ") and " failed at src/" not in line]
    return " ".join(kept or lines or [type(error).__name__])


class _Reader:
    """Finds the ranges of constants in one pass over the XML.

    Attributes:
        weights_end: End of the last constant in the ``.bin`` file.
        last_constant: Name of this constant.
        strings: Offset and size of each string constant.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights_end = 0
        self.last_constant = ""
        self.strings: list[tuple[int, int]] = []
        self._layer = ""
        self._stateful: str | None = None
        self._depth = 0

    def read(self) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse_dtd
        try:
            with self.path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):  # `ParseFile` reads 2 KiB at a time
                    parser.Parse(chunk, False)
                parser.Parse(b"", True)
        except OSError as error:
            raise ReadError("GP106", f"{self.path} cannot be read: {error.strerror}") from error
        except expat.ExpatError as error:
            raise ReadError("GP106", f"{self.path} is not XML, or damaged: {error}", _COPY_AGAIN) from error
        except (LookupError, ValueError) as error:  # expat uses Python's codecs for other encodings
            reason = f"{self.path} declares an encoding that XML parsers cannot read: {error}"
            raise ReadError("GP106", reason, "write the file in UTF-8, as OpenVINO does") from error

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self._check_root(tag, attributes)
        elif self._depth > _DEEPEST:
            raise ReadError("GP106", f"{self.path} nests elements deeper than {_DEEPEST}")
        if tag == "layer":
            self._stateful = attributes.get("name", "") if attributes.get("type") in {"ReadValue", "Assign"} else None
            self._layer = attributes.get("name", "") if attributes.get("type") == "Const" else ""
        elif tag == "data" and attributes.get("variable_id"):
            self._stateful = None
        elif tag == "data" and self._layer:
            offset, size = self._number(attributes, "offset"), self._number(attributes, "size")
            end = offset + size
            if attributes.get("element_type") == "string":
                self.strings.append((offset, size))
            if end > self.weights_end:
                self.weights_end, self.last_constant = end, self._layer

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "layer" and self._stateful is not None:  # OpenVINO 2026.4.1 crashes on such a ReadValue
            raise ReadError("GP106", f"{self.path}: layer {self._stateful!r} has no variable", _COPY_AGAIN)
        if tag == "layer":
            self._layer = ""

    def _number(self, attributes: dict[str, str], name: str) -> int:
        text = attributes.get(name, "")
        if not text.isdecimal():
            raise ReadError(
                "GP106", f"{self.path}: constant {self._layer!r} has an invalid {name}: {text!r}", _COPY_AGAIN
            )
        return int(text)

    def _check_root(self, tag: str, attributes: dict[str, str]) -> None:
        version = attributes.get("version", "")
        if tag != "net" or not version.isdecimal():
            raise ReadError(
                "GP106", f"{self.path} is XML, but not an OpenVINO IR: expected the element <net>, got <{tag}>"
            )
        if int(version) < _OLDEST_VERSION:
            hint = f"export the model again; OpenVINO reads version {_OLDEST_VERSION} and later"
            raise ReadError("GP106", f"{self.path} is an IR of the unsupported version {version}", hint)

    def _refuse_dtd(self, *_: object) -> None:
        raise ReadError("GP106", f"{self.path} declares a document type, which is not allowed in OpenVINO IR")
