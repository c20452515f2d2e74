"""Regular expressions and patterns: `~`, regexp_*, SIMILAR TO, and LIKE with a pattern that is no constant.

PostgreSQL's advanced regular expressions are rewritten for Python's `re`, whose alternatives match from left to right
and not by length; a pattern that `re` does not have, or that is longer than MAX_PATTERN, is an error of its rows. Each
is evaluated once per distinct combination of text and pattern. `re` goes back over its choices, so a pattern such as
(a+)+b can take time exponential in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from relational.expr.kernels.per_value import NoValue, limited

MAX_PATTERN = 1_000
_CLASSES = {
    "alpha": r"^\W\d_",
    "digit": r"\d",
    "alnum": r"^\W_",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "word": r"\w",
}
_NEGATED = {r"^\W\d_": r"A-Za-z\u00aa-\uffff", r"^\W_": r"A-Za-z0-9\u00aa-\uffff"}
_PART = re.compile(
    r"\\(?P<escape>[mMyYAZ])|(?P<escaped>\\.)|(?P<set>\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\])|(?P<end>\$)", re.DOTALL
)
_ESCAPES = {
    "m": r"\b(?=\w)",
    "M": r"\b(?<=\w)",
    "y": r"\b",
    "Y": r"\B",
    "A": r"\A",
    "Z": r"\Z",
}
_REPLACED = re.compile(r"\\(.)|\\$", re.DOTALL)
_FLAGS = {"i": re.IGNORECASE, "n": re.MULTILINE, "m": re.MULTILINE, "x": re.VERBOSE}


@lru_cache(maxsize=512)
def compiled(pattern: str, flags: str = "") -> re.Pattern[str]:
    """The pattern of PostgreSQL for Python. NoValue for one that there is not."""
    if len(pattern) > MAX_PATTERN:
        raise NoValue("the pattern is too long")
    wanted = re.RegexFlag(0)
    for flag in flags:
        if flag not in "gcist" + "".join(_FLAGS):
            raise NoValue("an option of a regular expression is one of g, i, c, n, m, s, x")
        wanted = wanted & ~re.IGNORECASE if flag == "c" else wanted | _FLAGS.get(flag, re.RegexFlag(0))
    if not wanted & re.MULTILINE:
        wanted |= re.DOTALL
    try:
        return re.compile(_PART.sub(lambda part: _rewritten(part, bool(wanted & re.MULTILINE)), pattern), wanted)
    except (re.error, OverflowError, RecursionError):
        raise NoValue("invalid regular expression") from None


def _rewritten(part: re.Match[str], by_line: bool) -> str:
    if part["escape"]:
        return _ESCAPES[part["escape"]]
    if part["end"]:
        return "$" if by_line else r"\Z"
    if part["set"]:
        return _set(part["set"])
    return part[0]


def _set(text: str) -> str:
    """A bracket expression, with its classes of characters."""
    alone = re.fullmatch(r"\[(\^?)\[:(\w+):\]\]", text)
    known = _CLASSES.get(alone[2]) if alone else None
    if alone and known is not None:
        is_negated = known.startswith("^") != bool(alone[1])
        return f"[{'^' if is_negated else ''}{known.removeprefix('^')}]"

    def inside(match: re.Match[str]) -> str:
        found = _CLASSES.get(match[1])
        if found is None:
            raise NoValue("invalid regular expression")
        return _NEGATED.get(found, found)

    body = re.sub(r"\[:(\w+):\]", inside, text[1:-1])
    return "[" + re.sub(r"(?<!\\)\[", r"\\[", body) + "]"


def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def matches_ignoring_case(text: str, pattern: str) -> bool:
    return compiled(pattern, "i").search(text) is not None


def regexp_like(text: str, pattern: str, flags: str = "") -> bool:
    return compiled(pattern, _without_global(flags)).search(text) is not None


def regexp_match(text: str, pattern: str, flags: str = "") -> list[str | None] | None:
    """The groups of the first match, or the match if there are none; NULL without a match."""
    found = compiled(pattern, _without_global(flags)).search(text)
    if found is None:
        return None
    return list(found.groups()) if found.re.groups else [found[0]]


def regexp_matches(text: str, pattern: str, flags: str = "") -> list[list[str | None]]:
    """What regexp_match gives of the first match, or of all of them with the option g."""
    found = compiled(pattern, flags)
    every = found.finditer(text) if "g" in flags else islice(found.finditer(text), 1)
    return [list(match.groups()) if found.groups else [match[0]] for match in every]


def regexp_count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    """How often it matches from position `start` on."""
    found = compiled(pattern, _without_global(flags))
    return sum(1 for _ in found.finditer(text, _checked_start(start) - 1))


def _nth_match(text: str, pattern: str, start: int, number: int, flags: str) -> re.Match[str] | None:
    if number < 1:
        raise NoValue("the number of a match is 1 at least")
    found = compiled(pattern, _without_global(flags)).finditer(text, _checked_start(start) - 1)
    return next((match for at, match in enumerate(found, 1) if at == number), None)


def regexp_instr(
    text: str, pattern: str, start: int = 1, number: int = 1, end: int = 0, flags: str = "", group: int = 0
) -> int:
    """The position of a match, or of the character after it if `end` is 1; 0 without one."""
    if end not in (0, 1):
        raise NoValue("the end option is 0 or 1")
    match = _nth_match(text, pattern, start, number, flags)
    if match is None or not 0 <= group <= match.re.groups or match.start(group) < 0:
        return 0
    return (match.end(group) if end else match.start(group)) + 1


def regexp_substr(
    text: str, pattern: str, start: int = 1, number: int = 1, flags: str = "", group: int = 0
) -> str | None:
    """The text of a match, or of a group of it; NULL without one."""
    match = _nth_match(text, pattern, start, number, flags)
    return match[group] if match is not None and 0 <= group <= match.re.groups else None


def substring(text: str, pattern: str) -> str | None:
    """The first group of the first match, else the match; NULL without a match."""
    match = compiled(pattern).search(text)
    return None if match is None else match[1 if match.re.groups else 0]


def regexp_replace(text: str, pattern: str, instead: str, flags: str = "") -> str:
    """The first match replaced, all of them with the option g; \\1 is a group and \\& the match."""
    limited(len(text) * (1 + len(instead)))
    return compiled(pattern, flags).sub(lambda match: _expanded(instead, match), text, count=0 if "g" in flags else 1)


def regexp_replace_from(
    text: str, pattern: str, instead: str, start: int, number: int | None = None, flags: str = ""
) -> str:
    """The match `number` from position `start` on replaced, all of them if it is 0; without a number the first one, or
    all with the option g."""
    found, first = compiled(pattern, flags), _checked_start(start) - 1
    wanted = number if number is not None else 0 if "g" in flags else 1
    if wanted < 0:
        raise NoValue("the number of a match is 0 at least")
    limited(len(text) * (1 + len(instead)))
    parts, begin = [], 0
    for at, match in enumerate(found.finditer(text, first), 1):
        if wanted in (0, at):
            parts += [text[begin : match.start()], _expanded(instead, match)]
            begin = match.end()
        if at == wanted:
            break
    return "".join([*parts, text[begin:]])


def _expanded(instead: str, match: re.Match[str]) -> str:
    """The text that replaces a match."""
    return _REPLACED.sub(lambda part: _replaced_part(part, match), instead)


def _replaced_part(part: re.Match[str], match: re.Match[str]) -> str:
    letter = part[1]
    if letter == "&":
        return match[0]
    if letter and letter in "123456789":
        return (match[int(letter)] or "") if int(letter) <= match.re.groups else ""
    return "\\" if letter in (None, "\\") else part[0]


def regexp_split(text: str, pattern: str, flags: str = "") -> list[str]:
    """The texts between the matches; an empty match at either end, or right after a match, is none."""
    found, begin = [], 0
    for match in compiled(pattern, _without_global(flags)).finditer(text):
        if match.end() > match.start() or begin < match.start() < len(text):
            found.append(text[begin : match.start()])
            begin = match.end()
    return [*found, text[begin:]]


def _without_global(flags: str) -> str:
    if "g" in flags:
        raise NoValue("the option g of a regular expression is for regexp_replace")
    return flags


def _checked_start(start: int) -> int:
    if start < 1:
        raise NoValue("a position is 1 at least")
    return start


def like(text: str, pattern: str) -> bool:
    """% is any run, _ one character, a backslash takes the next one literally."""
    return _like(pattern).fullmatch(text) is not None


def ilike(text: str, pattern: str) -> bool:
    """As `like`, in any case."""
    return _like(pattern.lower()).fullmatch(text.lower()) is not None


@lru_cache(maxsize=512)
def _like(pattern: str) -> re.Pattern[str]:
    found, at = [], 0
    while at < len(pattern):
        each = pattern[at]
        if each == "\\":
            at += 1
            if at == len(pattern):
                raise NoValue("a pattern ends with its escape character")
            found.append(re.escape(pattern[at]))
        else:
            found.append({"%": ".*", "_": "."}.get(each) or re.escape(each))
        at += 1
    return re.compile("".join(found), re.DOTALL)


def like_escape(pattern: str, escape: str) -> str:
    """The pattern with a backslash as its escape character, instead of `escape`."""
    if len(escape) > 1:
        raise NoValue("an escape is one character")
    found, at = [], 0
    while at < len(pattern):
        each = pattern[at]
        if escape and each == escape:
            at += 1
            if at == len(pattern):
                raise NoValue("a pattern ends with its escape character")
            found.append("\\" + pattern[at])
        else:
            found.append("\\\\" if each == "\\" else each)
        at += 1
    return "".join(found)


def similar_to(text: str, pattern: str) -> bool:
    """SQL's regular expressions: those of LIKE, with | * + ? {m,n} () and []."""
    return _similar(pattern).fullmatch(text) is not None


@lru_cache(maxsize=512)
def _similar(pattern: str) -> re.Pattern[str]:
    found, at, partings = [], 0, 0
    while at < len(pattern):
        part = re.compile(r"\\.|\[\^?\]?(?:\[:\w+:\]|[^\]])*\]|.", re.DOTALL).match(pattern, at)
        assert part is not None
        text, at = part[0], part.end()
        if text[0] == "[" and len(text) > 1:
            found.append(_set(text))
        elif text == '\\"':  # parts the text for SUBSTRING, and matches nothing
            partings += 1
        elif text in ("^", "$", ".", "\\") or len(text) > 1:
            found.append(re.escape(text[-1]))
        else:
            found.append({"%": ".*", "_": "."}.get(text, text).replace("(", "(?:"))
    if partings > 2:
        raise NoValue("a pattern has more than two quotes after its escape character")
    try:
        return re.compile("".join(found), re.DOTALL)
    except (re.error, OverflowError):
        raise NoValue("invalid regular expression") from None
