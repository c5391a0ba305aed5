"""Reading a widget's stylesheet from the `.tcss` file beside it."""

from pathlib import Path


def stylesheet(module: str) -> str:
    """The text of the `.tcss` file of a module; pass `__file__`. For `DEFAULT_CSS`, which takes no path."""
    return Path(module).with_suffix(".tcss").read_text(encoding="utf-8")
