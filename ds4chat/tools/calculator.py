"""Arithmetic without `eval`: a walk over the syntax tree, in which nothing can take long or grow large."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from ds4chat.tools.tool import ToolError

MAX_LENGTH = 500
"""Characters of an expression."""

MAX_BITS = 4_096
"""Of a whole number: some 1,200 digits."""

MAX_PLACES = 100
"""To round to."""

Number = int | float

_NAMES = {"pi": math.pi, "e": math.e, "tau": math.tau}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "degrees": math.degrees,
    "radians": math.radians,
}

KNOWN = ", ".join([*_FUNCTIONS, "round", *_NAMES])


def calculate(expression: str) -> str:
    """The value of an expression such as `2 * (3 + 4) ** 2`. Raises ToolError."""
    if len(expression) > MAX_LENGTH:
        raise ToolError(f"The expression is longer than {MAX_LENGTH} characters: calculate it in parts.")
    try:
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
        value = _value(tree.body)
    except ToolError:
        raise
    except ZeroDivisionError:
        raise ToolError("The expression divides by zero.") from None
    except (OverflowError, MemoryError, RecursionError):
        raise ToolError("The result is too large.") from None
    except SyntaxError:
        raise ToolError("This is no arithmetic expression.") from None
    except (ValueError, TypeError):
        raise ToolError("The expression has no real value, or a function got the wrong numbers.") from None
    return repr(value)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _checked(value)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _checked(_UNARY[type(sign)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _checked(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id="round"), args=[number], keywords=[]):
            return _checked(round(_value(number)))
        case ast.Call(func=ast.Name(id="round"), args=[number, places], keywords=[]):
            to = _value(places)
            if not isinstance(to, int) or abs(to) > MAX_PLACES:
                raise ToolError(f"round takes at most {MAX_PLACES} places.")
            return _checked(round(_value(number), to))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _checked(_FUNCTIONS[name](*map(_value, args)))
    raise ToolError(f"Only numbers, + - * / // % **, brackets and these are known: {KNOWN}.")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int):
        # Looked at before it is worked out: 9 ** 9 ** 9 would take all the memory there is.
        if abs(base) > 1 and base.bit_length() * abs(exponent) > 2 * MAX_BITS:
            raise OverflowError
        return _checked(base**exponent)
    return _checked(base**exponent)


def _checked(value: Any) -> Number:
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > MAX_BITS:
            raise OverflowError
        return value
    if isinstance(value, float):
        return value
    raise ValueError("no real number")
