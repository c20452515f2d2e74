"""to_char and to_number: numbers by PostgreSQL's template patterns, in the C locale.

Patterns: 9 0 . D , G S MI PL SG PR L $ FM RN TH V and EEEE. Each distinct number is formatted once per chunk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from relational.expr.kernels.per_value import NoValue

_TOKEN = re.compile(r'"([^"]*)"|EEEE|FM|MI|PL|SG|PR|RN|rn|TH|th|.', re.DOTALL)
_ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
    (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)
_PLACES, _GROUPS, _POINTS, _SILENT = ("9", "0"), (",", "G", "g"), (".", "D", "d"), ("V", "v", "FM")
_MAX_TEMPLATE = 200
_WIDE = Context(prec=400)


@dataclass(slots=True)
class _Template:
    """The tokens of a template, and what they ask for."""

    tokens: list[str]
    before: int
    after: int
    first_zero: int
    is_filled: bool
    sign: str

    @classmethod
    def of(cls, text: str) -> _Template:
        if len(text) > _MAX_TEMPLATE:
            raise NoValue("the template is too long")
        tokens = [match[0] for match in _TOKEN.finditer(text)]
        points = [at for at, token in enumerate(tokens) if token in (".", "D", "d", "V", "v")]
        end = points[0] if points else len(tokens)
        digits = [token for token in tokens[:end] if token in "90"]
        after = sum(token in ("9", "0") for token in tokens[end:])
        zero = digits.index("0") if "0" in digits else len(digits)
        signs = [token.upper() for token in tokens if token.upper() in ("S", "MI", "PL", "SG", "PR")]
        return cls(tokens, len(digits), after, zero, "FM" not in tokens, signs[0] if signs else "")


def number_text(value: Decimal, text: str) -> str:
    """to_char of a number; # signs where its digits do not fit."""
    template = _Template.of(text)
    if any(token in ("RN", "rn") for token in template.tokens):
        return _roman(value, template)
    if "EEEE" in template.tokens:
        return _scientific(value, template)
    if any(token in ("V", "v") for token in template.tokens):
        value = value.scaleb(template.after, context=_WIDE)
        template.before, template.after = template.before + template.after, 0
    rounded = abs(value).quantize(Decimal(1).scaleb(-template.after), rounding=ROUND_HALF_UP, context=_WIDE)
    whole, _, fraction = f"{rounded:f}".partition(".")
    whole = "" if whole == "0" and template.before and (template.after or template.before == 0) else whole
    if len(whole) > template.before:
        return _put(template, "#" * template.before, "#" * template.after, value < 0)
    return _put(template, whole, fraction, value < 0 and rounded != 0)


def _put(template: _Template, whole: str, fraction: str, is_negative: bool) -> str:
    """The digits in the places of the template, with the sign."""
    missing = template.before - len(whole)
    shown = ["0" if template.first_zero <= at else "" for at in range(missing)] + list(whole)
    if not template.is_filled:
        fraction = _without_zeros(template, fraction)
    found: list[str] = []
    place, first, is_after = 0, None, False
    digits = iter(fraction)
    for token in template.tokens:
        if token in _POINTS or (token in _PLACES and not is_after and shown[place]):
            first = len(found) if first is None else first
        if token in _PLACES and not is_after:
            found.append(shown[place] or " ")
            place += 1
        elif token in _PLACES:
            found.append(next(digits, ""))
        elif token in _GROUPS:
            found.append(" " if first is None else ",")
        elif token in _POINTS:
            is_after = True
            found.append(".")
        elif token not in _SILENT:
            found.append(_other(token, whole, is_negative, template))
    return _signed(found, first or 0, template, is_negative)


def _without_zeros(template: _Template, fraction: str) -> str:
    """The fraction without zeros at its end, up to the last place that the template wants."""
    end = next((at for at, token in enumerate(template.tokens) if token in (".", "D", "d")), len(template.tokens))
    places = [token for token in template.tokens[end:] if token in ("9", "0")]
    least = len(places) - places[::-1].index("0") if "0" in places else 0
    return fraction[:least] + fraction[least:].rstrip("0")


def _other(token: str, whole: str, is_negative: bool, template: _Template) -> str:
    upper = token.upper()
    if upper == "MI":
        return "-" if is_negative else " "
    if upper == "PL":
        return " " if is_negative else "+"
    if upper == "SG":
        return "-" if is_negative else "+"
    if upper in ("S", "PR"):
        return ""
    if upper == "TH":
        if is_negative or not whole:
            return ""
        number = int(whole)
        ending = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        return ending.upper() if token == "TH" else ending
    if upper == "L":
        return " "
    return token.strip('"')


def _signed(found: list[str], first: int, template: _Template, is_negative: bool) -> str:
    """With its sign: in front of the first digit, which is `found[first]`, or where the template has it."""
    mark = ""
    if template.sign == "S":
        mark = "-" if is_negative else "+"
        if [token.upper() for token in template.tokens].index("S") > first:
            return _trimmed("".join(found) + mark, template)
    elif template.sign == "PR":
        text = "".join([*found[:first], "<" if is_negative else " ", *found[first:], ">" if is_negative else " "])
        return _trimmed(text, template)
    elif template.sign not in ("MI", "SG") and not (template.sign == "PL" and is_negative and "-" in found):
        mark = "-" if is_negative else " "
    return _trimmed("".join([*found[:first], mark, *found[first:]]), template)


def _trimmed(text: str, template: _Template) -> str:
    """Without the blanks of places and signs that are empty, if the template asks for it."""
    return text if template.is_filled else text.replace(" ", "")


def _scientific(value: Decimal, template: _Template) -> str:
    exponent = value.adjusted() if value else 0
    scaled = value.scaleb(-exponent, context=_WIDE)
    scaled = scaled.quantize(Decimal(1).scaleb(-template.after), rounding=ROUND_HALF_UP, context=_WIDE)
    if abs(scaled) >= 10:
        exponent, scaled = exponent + 1, (scaled / 10).quantize(Decimal(1).scaleb(-template.after), context=_WIDE)
    mark = "-" if exponent < 0 else "+"
    text = f"{scaled:f}e{mark}{abs(exponent):02}"
    return text if value < 0 or not template.is_filled else f" {text}"


def _roman(value: Decimal, template: _Template) -> str:
    number = int(value.to_integral_value(ROUND_HALF_UP))
    if not 0 < number < 4000:
        return "###############"
    text = ""
    for size, letters in _ROMAN:
        count, number = divmod(number, size)
        text += letters * count
    text = text.lower() if "rn" in template.tokens else text
    return text.rjust(15) if template.is_filled else text


def read_number(text: str, template: str) -> Decimal:
    """to_number: the digits, the point and the sign of a text at the places of its template."""
    known = _Template.of(template)
    body = text.strip()
    is_negative = "-" in body or (known.sign == "PR" and body.startswith("<"))
    digits = re.sub(r"[^0-9.]", "", body)
    whole, _, fraction = digits.partition(".")
    if not whole and not fraction:
        raise NoValue("invalid text for NUMERIC")
    found = Decimal(f"{whole[: known.before] or '0'}.{fraction[: known.after] or '0'}")
    return -found if is_negative else found


def float_text(value: float, text: str) -> str:
    """to_char of a DOUBLE."""
    if value != value or abs(value) == float("inf"):
        raise NoValue("infinity and NaN have no digits")
    return number_text(Decimal(repr(value)), text)
