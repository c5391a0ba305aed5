"""The program's own log."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path

LOG_BYTES = 1_000_000
"""Size at which a log is put aside; one old one is kept."""


class LogFile(logging.Handler):
    """A rotating log file that is opened, and the code for it imported, with the first line: most runs write none."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @cached_property
    def _file(self) -> logging.Handler:
        from logging.handlers import RotatingFileHandler

        handler = RotatingFileHandler(
            self.path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", delay=True
        )
        handler.setFormatter(self.formatter)
        return handler

    def emit(self, record: logging.LogRecord) -> None:
        self._file.emit(record)

    def flush(self) -> None:
        if "_file" in self.__dict__:
            self._file.flush()

    def close(self) -> None:
        if "_file" in self.__dict__:
            self._file.close()
        super().close()
