"""Submits a spec file: chooses XML or JSON by content, calls maestro.submit_job, tells faults by file and line."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from db.errors import MaestroError, from_database
from submit import xml


def submit_file(connection: psycopg.Connection[Any], path: str | Path) -> dict[str, Any]:
    """Submit the spec in a file ("-" is standard input).

    Result: {"jobs": [{"pk_job", "name", "frames", "layers"}], "warnings": [text]}.
    Raises MaestroError with one line: the file, where in it, what is wrong, what would be right.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        document = read(_load(path))
        return submit_document(connection, document)
    except MaestroError as error:
        raise MaestroError(f"{name}: {error}") from None


def submit_spec(connection: psycopg.Connection[Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Submit a spec in its JSON form; as submit_file."""
    return submit_document(connection, xml.Document(spec))


def submit_document(connection: psycopg.Connection[Any], document: xml.Document) -> dict[str, Any]:
    try:
        row = connection.execute("select maestro.submit_job(%s)", [Jsonb(document.spec, dumps=_dumps)]).fetchone()
    except psycopg.errors.UntranslatableCharacter:
        raise MaestroError("the spec holds a NUL character (remove it)") from None
    except psycopg.Error as error:
        line = document.line(error.diag.message_detail or "")
        told = from_database(error)
        raise (MaestroError(f"line {line}: {told}") if line and error.sqlstate == "QM001" else told) from None
    answer: dict[str, Any] = row[0] if row else {}
    return answer


def read(content: bytes) -> xml.Document:
    """The document in the bytes of a file: JSON if it starts with a brace, else XML."""
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not start:
        raise MaestroError("the spec is empty (write a job spec as OpenCue XML or JSON)")
    if start != b"{":
        return xml.parse(content)
    try:
        spec = json.loads(content.decode("utf-8-sig"), parse_float=Decimal, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise MaestroError(f"byte {error.start + 1} is not UTF-8 (save the spec as UTF-8)") from None
    except RecursionError:
        raise MaestroError("the spec is nested too deeply (a job spec has five levels)") from None
    except json.JSONDecodeError as error:
        raise MaestroError(f"line {error.lineno}, column {error.colno}: this is not JSON: {error.msg}") from None
    return xml.Document(spec)


def _load(path: str | Path) -> bytes:
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(xml.BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(xml.BYTES_MAX + 1)
    except OSError as error:
        raise MaestroError(error.strerror or str(error)) from None
    if len(content) > xml.BYTES_MAX:
        raise MaestroError(f"the spec has over {xml.BYTES_MAX:,} bytes (split it into several)")
    return content


def _no_constant(name: str) -> Any:
    raise MaestroError(f"{name} is not a number that JSON knows (write a number)")


def _dumps(spec: Any) -> str:
    return json.dumps(spec, default=_number)


def _number(value: Any) -> Any:
    """2.0 stays 2.0: with a point it is cores, without one core points. As text, which is read alike."""
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
