"""Typed reading of the JSON form: every value is checked where it is read, and a fault names its place."""

from __future__ import annotations

import difflib
import re
from decimal import Decimal
from typing import Any, List, Optional, Tuple

from jobspec.errors import Path, SpecError

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d{1,18}(\.\d{0,9})?|\.\d{1,9})", re.ASCII)


class Reader:
    """One object of the spec."""

    def __init__(self, data: Any, where: str, path: Path, keys: Tuple[str, ...]) -> None:
        self.where, self.path = where, path
        if not isinstance(data, dict):
            raise SpecError(where or "spec", f"is {_kind(data)}", "an object is expected", path)
        self.data = data
        for key in data:
            if key not in keys:
                near = difflib.get_close_matches(str(key), keys, 1)
                hint = f"did you mean {near[0]}?" if near else "known here: " + ", ".join(keys)
                raise SpecError(self._at(""), f'"{clip(str(key))}" is not known', hint, path)

    def _at(self, key: str) -> str:
        return ", ".join(part for part in (self.where, key) if part) or "spec"

    def fault(self, key: str, message: str, hint: str = "") -> SpecError:
        return SpecError(self._at(key), message, hint, self.path + (key,) if key else self.path)

    def has(self, key: str) -> bool:
        value = self.data.get(key)
        return value is not None and value != ""

    def text(self, key: str, width: int = 0, required: bool = False, hint: str = "") -> str:
        """A trimmed string ("" if absent); `width` is the longest that its column holds."""
        value = self.data.get(key)
        if value is None:
            value = ""
        elif isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (int, float, Decimal)):
            value = str(value)
        elif not isinstance(value, str):
            raise self.fault(key, f"is {_kind(value)}", "a string is expected")
        value = value.strip()
        self.check_text(key, value, width)
        if required and not value:
            raise self.fault(key, "is missing", hint)
        return value

    def check_text(self, key: str, value: str, width: int) -> None:
        if width and len(value) > width:
            raise self.fault(key, f"has {len(value)} characters", f"at most {width} are stored")
        if "\x00" in value:
            raise self.fault(key, "holds a NUL character", "remove it")

    def integer(self, key: str, low: int, high: int, hint: str = "") -> Optional[int]:
        text = self.text(key)
        if not text:
            return None
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not low <= number <= high:
            raise self.fault(key, f'"{clip(text)}" is out of bounds' if number is not None else _no_number(text),
                             hint or f"a whole number from {low} to {high} is expected")  # fmt: skip
        return number

    def decimal(self, key: str, text: str) -> Decimal:
        if not _DECIMAL.fullmatch(text):
            raise self.fault(key, _no_number(text), "a number is expected")
        return Decimal(text)

    def boolean(self, key: str) -> Optional[bool]:
        text = self.text(key).lower()
        if not text:
            return None
        if text not in _TRUE + _FALSE:
            raise self.fault(key, f'"{clip(text)}" is not a yes or no', "true or false is expected")
        return text in _TRUE

    def items(self, key: str) -> List[Any]:
        """A list; one value alone is a list of it."""
        value = self.data.get(key)
        if value is None or value == "":
            return []
        return value if isinstance(value, list) else [value]

    def texts(self, key: str, separator: str, width: int = 0) -> List[str]:
        """Strings of a list, or of one string cut at `separator`; empty ones and repeats are dropped."""
        found = []
        for item in self.items(key):
            if isinstance(item, bool) or not isinstance(item, (str, int)):
                raise self.fault(key, f"holds {_kind(item)}", "strings are expected")
            for part in str(item).split(separator):
                part = part.strip()
                self.check_text(key, part, width)
                if part and part not in found:
                    found.append(part)
        return found

    def pairs(self, key: str, key_width: int, value_width: int) -> List[Tuple[str, str]]:
        """Names and values of an object, in its order."""
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, dict):
            raise self.fault(key, f"is {_kind(value)}", "an object of names and values is expected")
        found = []
        for name, content in value.items():
            if not name or "=" in name:
                raise self.fault(key, f'"{clip(name)}" is not a name', "a name is not empty and holds no =")
            if content is None:
                content = ""
            if isinstance(content, bool) or not isinstance(content, (str, int, float, Decimal)):
                raise self.fault(key, f'"{clip(name)}" is {_kind(content)}', "a string is expected")
            self.check_text(f"{key} name", name, key_width)
            self.check_text(f"{key} {clip(name)}", str(content), value_width)
            found.append((name, str(content)))
        return found


def clip(text: str) -> str:
    """Short enough for one line of an error, without line ends."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def _no_number(text: str) -> str:
    return f'"{clip(text)}" is not a number'


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "a boolean"), (str, "a string"), (list, "a list"), (dict, "an object")):
        if isinstance(value, kind):
            return name
    return "a number"
