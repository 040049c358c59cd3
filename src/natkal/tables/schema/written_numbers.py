"""Numbers as people write them: a decimal point or comma, thousands separators, currency and percent signs.

`1,234.5`, `1.234,5`, `1 234`, `1'234`, `12,34,567`, `$ 5.00`, `5,00 €`, `(5.00)` for -5, `12 %` for 0.12.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

POINT, COMMA = ".", ","
FOLLOW, UNCLEAR = "", "?"
"""Verdicts on a column: its cells read alike either way, or some read differently and nothing says which is meant."""

SPACES = " \u00a0\u2009\u202f"
CURRENCY = r"(?:[$¢-¥฿₠-⃀]|US\$|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|BRL|R\$|kr\.?|zł|Kč|Fr\.)"
ENOUGH = 100
"""A column of which so many cells are no numbers at all is none of numbers."""
CLEAR_SHARE = 0.1
"""`950` beside `1,234`: where at least this share of cells has no comma, the comma separates thousands."""


def _grammar(decimal: str, groups: str, *, indian: bool) -> re.Pattern[str]:
    """Sign, currency, digits in groups or not, a fraction, an exponent, currency or percent; brackets are a minus."""
    point = re.escape(decimal)
    grouped = rf"[1-9][0-9]{{0,2}}(?P<group>[{groups}'’{SPACES}])[0-9]{{3}}(?:(?P=group)[0-9]{{3}})*(?:{point}[0-9]*)?"
    lakhs = rf"|[1-9][0-9]?(?:,[0-9]{{2}})+,[0-9]{{3}}(?:{point}[0-9]*)?" if indian else ""
    plain = rf"(?:[0-9]+(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    gap = f"[{SPACES}]?"
    return re.compile(
        rf"(?P<open>\()?(?P<sign>[+\-−])?(?:{CURRENCY}{gap}(?P<inner>[+\-−])?)?"
        rf"(?P<digits>{grouped}{lakhs}|{plain})"
        rf"(?:{gap}(?:{CURRENCY}|(?P<percent>%)))?(?P<close>\))?"
    )


GRAMMARS = {POINT: _grammar(POINT, ",", indian=True), COMMA: _grammar(COMMA, ".", indian=False)}
_NOT_DIGITS = {sign: re.compile(rf"[^0-9eE+\-{re.escape(sign)}]") for sign in GRAMMARS}
_GROUPED_BY_POINTS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")


def read_number(text: str, decimal: str) -> float | None:
    """The number written here, None if it is none.

    >>> read_number("1.234,5 €", ","), read_number("1,234.5", "."), read_number("-12%", ".")
    (1234.5, 1234.5, -0.12)
    >>> read_number("1,5", ".") is None
    True
    """
    match = GRAMMARS[decimal].fullmatch(text.strip())
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    negative = bool(match["open"]) + (match["sign"] in ("-", "−")) + (match["inner"] in ("-", "−"))
    if negative > 1 or (match["sign"] and match["inner"]):
        return None
    value = float(_NOT_DIGITS[decimal].sub("", match["digits"]).replace(decimal, POINT))
    return (-value if negative else value) / (100.0 if match["percent"] else 1.0)


class Survey(NamedTuple):
    """How many cells of a column are numbers: those that need a point or a comma, or read alike either way, or not."""

    cells: int
    point: int = 0
    comma: int = 0
    alike: int = 0
    zeros: int = 0
    by_point: int = 0
    by_comma: int = 0
    """`by_point`, `by_comma`: read differently, and have a point or a comma in them."""

    @property
    def sign(self) -> str:
        """The decimal sign the cells show: POINT, COMMA, FOLLOW or UNCLEAR."""
        if 2 * (self.point + self.comma + self.alike + self.by_point + self.by_comma) < self.cells:
            return FOLLOW
        if self.point or self.comma:
            return POINT if self.point >= self.comma else COMMA
        if not self.by_comma:
            return FOLLOW
        return POINT if self.alike - self.zeros >= CLEAR_SHARE * self.cells else UNCLEAR

    def mixed(self, most: float) -> bool:
        """Whether that share of the cells are numbers, and not with one decimal sign."""
        either = self.alike + self.by_point + self.by_comma
        return either + max(self.point, self.comma) < most * self.cells <= either + self.point + self.comma


def survey(column: Sequence[Any]) -> Survey:
    """Count how the cells of a column, none missing, write numbers. Cells that are not text read alike."""
    if plain_numbers(column) is not None:
        odd = sum("." in cell and not _GROUPED_BY_POINTS.fullmatch(cell.strip()) for cell in column)
        return Survey(cells=len(column), point=odd, alike=len(column) - odd)
    counts = dict.fromkeys(Survey._fields[1:], 0)
    for place, cell in enumerate(column):
        if place == ENOUGH and not any(counts.values()):
            break
        if not isinstance(cell, str):
            counts["alike"] += isinstance(cell, int | float)
            continue
        with_point, with_comma = read_number(cell, POINT), read_number(cell, COMMA)
        if with_point is None or with_comma is None:
            counts["point"] += with_point is not None
            counts["comma"] += with_comma is not None
        elif with_point == with_comma:
            counts["alike"] += 1
            counts["zeros"] += with_point == 0
        else:
            counts["by_comma" if COMMA in cell else "by_point"] += 1
    return Survey(cells=len(column), **counts)


def common_sign(signs: Sequence[str]) -> str:
    """The decimal sign that most columns of a table show by themselves; FOLLOW where none does."""
    points, commas = signs.count(POINT), signs.count(COMMA)
    if not points and not commas:
        return FOLLOW
    return POINT if points >= commas else COMMA


def plain_numbers(column: Sequence[Any]) -> np.ndarray | None:
    """A column of text that is all plain finite numbers, read at once; None if anything needs a closer look."""
    try:
        text = "".join(column)
        values = np.array(list(map(float, column)), np.float64)
    except (TypeError, ValueError):
        return None
    return values if text.isascii() and "_" not in text and np.isfinite(values).all() else None
