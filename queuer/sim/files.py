"""Files as they come from outside: read no further than they may be long, packed or not, YAML without surprises."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import yaml

from queuer.domain.errors import InvalidInput

MOST_BYTES = 512 * 2**20
"""Of a file, unpacked."""
MOST_YAML = 4 * 2**20
"""Of a YAML file."""
MOST_VALUES = 200_000
"""In a YAML file, aliases followed."""
_GZIP = b"\x1f\x8b"
_TAGS = "tag:yaml.org,2002:"
_NO_JSON = frozenset(_TAGS + name for name in ("timestamp", "binary", "set"))
"""Tags of values that JSON cannot hold."""


def read_bytes(path: Path, *, most: int = MOST_BYTES, hint: str = "") -> bytes:
    """The content of a file, plain or gzip. Raises InvalidInput naming it."""
    try:
        with path.open("rb") as plain:
            packed = plain.peek(2).startswith(_GZIP)
            data = (gzip.GzipFile(fileobj=plain) if packed else plain).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        message = getattr(error, "strerror", None) or str(error)
        raise unreadable(path, f"cannot be read: {message}", hint) from error
    if len(data) > most:
        raise unreadable(path, f"has more than {most} bytes", hint)
    return data


def read_text(path: Path, *, most: int = MOST_BYTES, hint: str = "") -> str:
    """The text of a file, plain or gzip. Raises InvalidInput naming it."""
    try:
        return read_bytes(path, most=most, hint=hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(path, f"cannot be read: {error}", hint) from error


def read_yaml(path: Path) -> Any:
    """The one document in a file. Raises InvalidInput naming it."""
    try:
        return yaml.load(read_text(path, most=MOST_YAML), Loader=StrictLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that cannot be
        raise unreadable(path, f"cannot be read: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise unreadable(path, "is nested too deeply") from error


def unreadable(path: Path, message: str, hint: str = "") -> InvalidInput:
    """The error about a file."""
    return InvalidInput.at(str(path), message, hint)


class StrictLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice, values that are no JSON, and aliases that unfold to more than fits.

    A date without quotes is a text, as in kubectl.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Look through the nodes before anything is made of them."""
        left, seen = [node], 0
        while left:
            one = left.pop()
            seen += 1
            if seen > MOST_VALUES:
                raise yaml.MarkedYAMLError(problem=f"holds more than {MOST_VALUES} values")
            if one.tag in _NO_JSON:
                problem = f"{one.tag.replace(_TAGS, '!!')} is no value of JSON"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=one.start_mark)
            if isinstance(one, yaml.SequenceNode):
                left += one.value
            elif isinstance(one, yaml.MappingNode):
                keys = set[str]()
                for key, value in one.value:
                    if isinstance(key, yaml.ScalarNode):
                        if key.value in keys:
                            problem = f"{key.value!r} is given twice"
                            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                        keys.add(key.value)
                    left += [key, value]
        return super().construct_document(node)


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NO_JSON]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
