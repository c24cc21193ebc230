"""Messages between the solver process and its parent: a mark, a length, a pickle.

Pickles, because both ends are one program on one machine and the records are plain; read-only mappings, which
pickle refuses, travel as dicts. Functions live here and not in the program that the child runs, whose name
differs on both sides.
"""

from __future__ import annotations

import gc
import io
import pickle
import struct
from copyreg import dispatch_table
from types import MappingProxyType
from typing import Any

HEADER = struct.Struct(">4sQ")
MARK = b"QUER"
MOST_BYTES = 2**32
READY = "ready"
"""What a process says first, and when it has taken over a snapshot."""


def pack(message: object) -> bytes:
    """A message as bytes, header included."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**dispatch_table, MappingProxyType: _plain}
    pickler.dump(message)
    body = buffer.getvalue()
    return HEADER.pack(MARK, len(body)) + body


def length_of(header: bytes) -> int:
    """Bytes of the body that follows. Raises ValueError where the header is none."""
    mark, length = HEADER.unpack(header)
    if mark != MARK or length > MOST_BYTES:
        raise ValueError("bytes that are no message")
    return int(length)


def unpack(body: bytes) -> Any:
    """The message. Raises whatever unpickling garbage raises; only for bytes of one's own process.

    Nothing in it is garbage yet, so none is looked for meanwhile: that takes longer than all the rest.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(body)
    finally:
        if collects:
            gc.enable()


def freeze(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """A read-only mapping, as unpickled."""
    return MappingProxyType(mapping)


def _plain(mapping: MappingProxyType[Any, Any]) -> tuple[Any, tuple[dict[Any, Any]]]:
    return freeze, (dict(mapping),)
