"""Bytes that the API server sent become objects, whatever a tenant wrote into the parts that nobody reads.

The server keeps managed fields 10,000 levels deep. msgspec skips unread fields by recursion, which Python ends at about
1,000 levels. PostgreSQL stores no NUL character, which annotations may hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
_DEEPEST = 100
"""Levels that are kept where all are too many; the fields that are read end within 20."""
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """A function that decodes JSON of any depth as `kind`, from an answer or a part of one. It raises MsgspecError."""
    decode = msgspec.json.Decoder(kind).decode

    def read(body: bytes) -> T:
        # A part comes of an answer that was read so.
        if not isinstance(body, msgspec.Raw) and b"\\u0000" in body:
            body = body.replace(b"\\u0000", b"\\ufffd")
        try:
            return decode(body)
        except RecursionError:
            return decode(_shallow(bytes(body)))

    return read


def _shallow(body: bytes) -> bytes:
    """The document with null in place of each array and object below the deepest level."""
    kept, depth, start = list[bytes](), 0, 0
    for token in _TOKENS.finditer(body):
        if token[0] in b"{[":
            depth += 1
            if depth == _DEEPEST + 1:
                kept.append(body[start : token.start()])
        elif token[0] in b"}]":
            depth -= 1
            if depth == _DEEPEST:
                kept.append(b"null")
                start = token.end()
    return b"".join((*kept, body[start:]))
