"""`ds4chat` itself, with `engine.py` in place of its engine's worker; arguments as of the program."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

spawn = asyncio.create_subprocess_exec


async def scripted(program: str, *args: str, **options: object) -> asyncio.subprocess.Process:
    if args[:2] == ("-m", "ds4chat.engine.worker"):
        args = (str(Path(__file__).with_name("engine.py")),)
    return await spawn(program, *args, **options)  # type: ignore[arg-type]


asyncio.create_subprocess_exec = scripted  # type: ignore[assignment]

from ds4chat.cli import main  # noqa: E402 - the program starts here

sys.exit(main())
