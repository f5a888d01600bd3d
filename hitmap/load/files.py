"""Reads workload and trace files, plain or compressed, a line at a time."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from cachemodel.errors import UserError

MAX_LINE_BYTES = 64 << 20
T = TypeVar("T")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that hold something, with their numbers from 1. Raises UserError for a file that cannot be read."""
    try:
        with _open(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    raise UserError(f"{path} line {number} is longer than {MAX_LINE_BYTES >> 20} MiB")
                if line := line.strip():
                    yield number, line
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def decoded(path: Path, form: type[T]) -> Iterator[T]:
    """Every line as JSON of the given form. Raises UserError that names the line."""
    decoder = msgspec.json.Decoder(form)
    for number, line in lines(path):
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(f"{path} line {number}: {error}") from None


def _open(path: Path) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(path)
        case ".xz":
            return lzma.LZMAFile(path)
        case _:
            return path.open("rb")
