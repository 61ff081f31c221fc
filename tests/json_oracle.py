"""What a JSON text means, by Python's parser and its decimals, which share no code with Spark's."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

BAD = "a bad record"
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Number(str):
    """The text of a number."""


class Object(tuple):
    """The pairs of names and values, as often as they are there."""


def meaning(text: bytes) -> Any:
    """The value of a text, with its numbers as they are written, or ``BAD``."""
    try:
        found = json.loads(
            text.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Object
        )
        json.dumps(found, ensure_ascii=False).encode()  # half a character has no UTF-8
    except (ValueError, RecursionError):
        return BAD
    return found


def refuse(constant: str) -> None:
    raise ValueError(constant)


def parts(value: Any) -> Iterator[Any]:
    """A value, and all that it contains."""
    left = [value]
    while left:
        part = left.pop()
        yield part
        if isinstance(part, Object):
            left += [each for _, each in part]
        elif isinstance(part, list):
            left += part


def has_name_twice(value: Any) -> bool:
    return any(isinstance(part, Object) and len({name for name, _ in part}) < len(part) for part in parts(value))


def numbers_of(value: Any) -> list[Number]:
    return [part for part in parts(value) if isinstance(part, Number)]


def in_string(number: str) -> str:
    return number


def in_whole(number: str, bits: int) -> Any:
    """A number with a point or an exponent isn't one of these types, even if it is whole."""
    fits = re.fullmatch("-?[0-9]+", number) and -(2 ** (bits - 1)) <= int(number) < 2 ** (bits - 1)
    return int(number) if fits else BAD


def in_decimal(number: str, precision: int, scale: int) -> Any:
    if re.search("[eE][+-]?[0-9]{4}", number):
        return BAD
    exact = Fraction(number)
    unscaled = exact * 10**scale
    fits = unscaled.denominator == 1 and abs(unscaled) < 10**precision
    return Decimal(f"{int(unscaled)}E-{scale}") if fits else BAD


def in_double(number: str) -> Any:
    nearest = float(number)
    lost = math.isinf(nearest) or (nearest == 0 and not is_zero(number))
    return BAD if lost else nearest


def in_float(number: str) -> Any:
    if in_double(number) is BAD:
        return BAD
    if is_zero(number):
        return float(number)
    exact, sign = abs(Fraction(number)), -1 if number.startswith("-") else 1
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", abs(float(number))))
    except OverflowError:
        return BAD
    around = [struct.unpack("<f", struct.pack("<I", bits + step))[0] for step in (-1, 0, 1) if bits + step >= 0]
    finite = [each for each in around if math.isfinite(each)]
    nearest = min(finite, key=lambda each: (abs(Fraction(each) - exact), struct.pack("<f", each)[0] & 1))
    return BAD if nearest == 0 else sign * nearest


def in_variant(number: str) -> Any:
    """A DECIMAL of up to 38 digits, or a DOUBLE of up to 17. Compared by its value, as a VARIANT says it."""
    digits = re.sub("[eE].*|[-.]", "", number)
    fraction = re.search(r"\.([0-9]+)", number)
    below = len(fraction[1]) if fraction else 0
    if not re.search("[eE]", number) and len(digits.lstrip("0")) <= 38 and below <= 38:
        return Decimal(number)
    return BAD if len(digits.strip("0")) > 17 else in_double(number)


def is_zero(number: str) -> bool:
    return not re.search("[1-9]", re.sub("[eE].*", "", number))
