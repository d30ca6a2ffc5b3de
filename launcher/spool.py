"""Completions that arrive while the database is away, kept on disk: appended, synced, then acknowledged to RQD.

One file of JSON lines a launcher process, locked while in use; files that processes left behind are taken over at the
start. What is in it goes into the database first, in order, when that is back. A line cut short by a crash was never
acknowledged, so it is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from db.errors import MaestroError
from launcher import log

FILES_MAX = 64


class Spool:
    """Blocking; call from a thread. Not for two threads at once."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self._files: list[int] = []
        self._file = -1
        self._offset = 0  # where what is not yet replayed begins
        self.depth = 0  # completions not yet replayed

    def open(self) -> None:
        """Take a file of our own, and what ended processes left. Raises MaestroError when the directory is unusable."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            for number in range(FILES_MAX):
                path = self.directory / f"completions.{number}.jsonl"
                if self._files and not path.exists():
                    continue
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                self._files.append(descriptor)
            if not self._files:
                raise MaestroError(f"the spool {self.directory} is in use by {FILES_MAX} launchers")
            self._file = self._files[0]
            self._repair()
            for other in self._files[1:]:
                self._take_over(other)
        except OSError as error:
            raise MaestroError(f"cannot use the spool {self.directory}: {error.strerror}") from None
        self.depth = len(self._lines())
        if self.depth:
            log.info("spool holds completions", completions=self.depth, directory=self.directory)

    def close(self) -> None:
        for descriptor in self._files:
            os.close(descriptor)
        self._files = []

    def append(self, reports: list[dict[str, Any]]) -> None:
        """Store reports; durable on return. Raises OSError (disk full), and then none of them is stored."""
        data = "".join(json.dumps(report) + "\n" for report in reports).encode()
        before = os.fstat(self._file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view):]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, before)
            raise
        self.depth += len(reports)

    def peek(self, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The oldest reports not yet replayed, at most `limit`, and the offset to hand to `advance`."""
        reports, offset = [], self._offset
        for line in self._lines()[:limit]:
            offset += len(line)
            try:
                reports.append(json.loads(line))
            except ValueError:
                log.error("spool line is not JSON, dropped", directory=self.directory, bytes=len(line))
        return reports, offset

    def advance(self, offset: int) -> None:
        """What lies before `offset` is in the database; an emptied spool is cut to nothing."""
        self._offset = offset
        if offset >= os.fstat(self._file).st_size:
            os.ftruncate(self._file, 0)
            os.fsync(self._file)
            self._offset = 0
        self.depth = len(self._lines())

    def _lines(self) -> list[bytes]:
        size = os.fstat(self._file).st_size
        data = os.pread(self._file, size - self._offset, self._offset)
        return data.splitlines(keepends=True)

    def _repair(self) -> None:
        """Cut off a last line that a crash left unfinished, so that the next one starts afresh."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            log.warning("spool ended in an unfinished line, dropped", bytes=len(data) - whole)
            os.ftruncate(self._file, whole)

    def _take_over(self, other: int) -> None:
        data = os.pread(other, os.fstat(other).st_size, 0)
        whole = data[: data.rfind(b"\n") + 1]
        if whole:
            view = memoryview(whole)
            while view:
                view = view[os.write(self._file, view):]
            os.fsync(self._file)
            os.ftruncate(other, 0)
