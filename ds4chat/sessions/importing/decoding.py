"""JSON of others, decoded into what is asked for: no more of it is kept in memory."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from ds4chat.errors import InterchangeError
from ds4chat.validation import explain, short

T = TypeVar("T")


def decode(data: bytes, type_: type[T]) -> T:
    """The value as the type. Raises InterchangeError, which holds a clause."""
    try:
        try:
            return msgspec.json.decode(data, type=type_)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Half a surrogate, NaN or bytes that are no UTF-8 cost what they stand in, not the chat.
            value = json.loads(data.decode("utf-8", "replace"), strict=False)
            return msgspec.convert(_joined(value), type_)
    except msgspec.ValidationError as error:
        raise InterchangeError(explain(error, {})) from None
    except RecursionError:
        raise InterchangeError("it is nested too deeply") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise InterchangeError(f"it is not valid JSON ({short(str(error))})") from None


def _joined(value: Any) -> Any:
    """The value with text that `msgspec` takes: no half surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_joined(item) for item in value]
    if isinstance(value, dict):
        return {_joined(key): _joined(item) for key, item in value.items()}
    return value
