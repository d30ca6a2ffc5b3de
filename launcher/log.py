"""One line a log entry: `time level what key=value …`. Values with blanks are quoted; no secrets go in."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

_logger = logging.getLogger("maestro.launcher")


def setup(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _logger.handlers[:] = [handler]
    _logger.setLevel(level.upper())
    _logger.propagate = False


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n\t\r') else text


def line(what: str, fields: dict[str, Any]) -> str:
    return " ".join([what, *(f"{key}={_text(value)}" for key, value in fields.items())])


def debug(what: str, **fields: Any) -> None:
    if _logger.isEnabledFor(logging.DEBUG):
        _logger.debug(line(what, fields))


def info(what: str, **fields: Any) -> None:
    if _logger.isEnabledFor(logging.INFO):
        _logger.info(line(what, fields))


def warning(what: str, **fields: Any) -> None:
    _logger.warning(line(what, fields))


def error(what: str, **fields: Any) -> None:
    _logger.error(line(what, fields))


def exception(what: str, problem: BaseException, **fields: Any) -> None:
    """An error that nobody foresaw: with its traceback."""
    _logger.error(line(what, {**fields, "error": problem}), exc_info=problem)
