"""sqlglot's parser for PostgreSQL, reduced so that the tree keeps the text as written.

sqlglot turns functions into dedicated nodes, with arguments renamed, moved or omitted, and normalizes intervals and
types, because it translates between dialects. Here every function is its name with its arguments in text order, and the
operators besides arithmetic and comparisons are calls by name too; types and intervals keep the span of their text.
Lookahead is limited to a few tokens, so parsing is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from inspect import signature
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.risingwave import RisingWave
from sqlglot.errors import ParseError
from sqlglot.parsers.risingwave import RisingWaveParser
from sqlglot.tokenizer_core import TokenizerCore
from sqlglot.tokens import Token, TokenType

OWN = "own"
"""Key in a node's `meta`: (start, end) of the words that belong to the node itself, not to its children."""
_INTERVAL_UNITS = frozenset(
    unit + plural
    for unit in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")
    for plural in ("", "S")
)
_DOLLAR_TAG = re.compile(r"\$(?:[^\W\d]\w*)?\$")
"""What a text begins with whose quotes are dollar signs: its tag, if it has one, begins with a letter."""
_OPERATORS = {
    TokenType.ARROW: "json_get",
    TokenType.DARROW: "json_get_text",
    TokenType.HASH_ARROW: "json_at",
    TokenType.DHASH_ARROW: "json_at_text",
    TokenType.HASH_DASH: "json_delete_at",
    TokenType.PLACEHOLDER: "json_exists",
    TokenType.QMARK_PIPE: "json_exists_any",
    TokenType.QMARK_AMP: "json_exists_all",
    TokenType.AT_GT: "contains",
    TokenType.LT_AT: "is_contained",
    TokenType.DAMP: "overlaps",
    TokenType.CARET_AT: "starts_with",
    TokenType.RLIKE: "matches",
    TokenType.IRLIKE: "imatches",
    TokenType.AMP: "bit_and",
    TokenType.PIPE: "bit_or",
    TokenType.HASH: "bit_xor",
}
"""Operators between || and a comparison, all of one precedence, and the functions that they call."""
_COMPARISONS = {
    TokenType.EQ: "equal",
    TokenType.NEQ: "not_equal",
    TokenType.LT: "less",
    TokenType.LTE: "less_equal",
    TokenType.GT: "greater",
    TokenType.GTE: "greater_equal",
}
_PAIRS = {TokenType.LT: "shift_left", TokenType.GT: "shift_right"}
"""Operators of the same precedence that are a sign twice."""


class Plus(exp.Unary):
    """+x"""


class Operation(exp.Expression):
    """An operator as a call: `this` is the name of the function, `expressions` its arguments."""

    arg_types: ClassVar = {"this": True, "expressions": True}


class TextParser(RisingWaveParser):
    """A tree whose leaves know their position in the text."""

    FUNCTIONS: ClassVar[dict[str, Callable]] = {}
    FUNC_TOKENS: ClassVar = RisingWaveParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable]] = {
        "CAST": RisingWaveParser.FUNCTION_PARSERS["CAST"],
        "EXTRACT": lambda self: self._parse_extract(),
        "OVERLAY": lambda self: self._parse_overlay(),
        "POSITION": lambda self: self._parse_position_in(),
        "SUBSTRING": lambda self: self._parse_substring(),
        "TRIM": lambda self: self._parse_trim(),
    }
    STATEMENT_PARSERS: ClassVar = {
        kind: RisingWaveParser.STATEMENT_PARSERS[kind] for kind in (TokenType.DELETE, TokenType.UPDATE)
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": RisingWaveParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    NO_PAREN_FUNCTIONS: ClassVar = {
        TokenType.CURRENT_DATE: exp.CurrentDate,
        TokenType.CURRENT_TIME: exp.CurrentTime,
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
        TokenType.LOCALTIMESTAMP: exp.Localtimestamp,
    }
    LAMBDAS: ClassVar = {
        kind: parse for kind, parse in RisingWaveParser.LAMBDAS.items() if kind is not TokenType.ARROW
    }
    TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Callable]] = {}
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable]] = {
        TokenType.PLACEHOLDER: lambda self: self._parameter("?"),
        TokenType.PARAMETER: lambda self: self._parse_marked("$", TokenType.NUMBER),
        TokenType.COLON: lambda self: self._parse_marked(":"),
    }
    OPTIONAL_ALIAS_TOKEN_CTE = False
    UNARY_PARSERS: ClassVar = {
        **RisingWaveParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self.expression(Plus(this=self._parse_unary())),
        TokenType.PIPE_SLASH: lambda self: self._operation("sqrt", [self._prev], self._parse_unary()),
        TokenType.DPIPE_SLASH: lambda self: self._operation("cbrt", [self._prev], self._parse_unary()),
        TokenType.RLIKE: lambda self: self._operation("bit_not", [self._prev], self._parse_unary()),
    }
    RANGE_PARSERS: ClassVar = {
        **{kind: parse for kind, parse in RisingWaveParser.RANGE_PARSERS.items() if kind not in _OPERATORS},
        TokenType.OPERATOR: lambda self, this: self._parse_named_operator(this),
    }
    COLUMN_OPERATORS: ClassVar = {
        kind: parse for kind, parse in RisingWaveParser.COLUMN_OPERATORS.items() if kind not in _OPERATORS
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """The error with its position: that of the token concerned, else the current or the last one."""
        at = token or self._curr or self._prev
        span = {"start": at.start, "end": at.end} if at else {"start": 0, "end": 0}
        raise ParseError(message, errors=[span])

    def reset(self) -> None:
        """Resets the parser for other tokens."""
        super().reset()
        self._joins: dict[tuple[int, bool, bool], tuple[exp.Join | None, int]] = {}

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        """Parses the join at a token once: sqlglot parses what follows a JOIN without ON as part of it, then, without a
        later ON, a second time, at every JOIN of a sequence.
        """
        first = self._index
        key = first, skip_join_token, parse_bracket
        if key not in self._joins:
            is_comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
            parsed = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
            if parsed is not None:
                parsed.meta["is_comma"] = is_comma
            self._joins[key] = parsed, self._index
        join, after = self._joins[key]
        self._retreat(after)
        return join

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        """A UNION and the like, with its words."""
        first = self._index
        node = super().parse_set_operation(this, consume_pipe, intersect_only)
        words = self._tokens[first : first + 2]
        kinds = (*self.SET_OPERATIONS, TokenType.ALL, TokenType.DISTINCT)
        return node and self._owning(node, [word for word in words if word.token_type in kinds])

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:
        """Nothing: unnest is a function like others."""
        return None

    def _values_to_select(self, values: exp.Values) -> Any:
        """VALUES as it is written: sqlglot would put a SELECT * around it."""
        return values

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """A type with the span of its text. A name before a parenthesis is a type only with digits inside, ARRAY[ never
        is: sqlglot would parse the contents as a type, then again as a value, at every depth.
        """
        if not self._curr or self._is_call():
            return None
        first = self._index
        node = super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        if isinstance(node, exp.DataType):
            node.meta["start"], node.meta["end"] = self._tokens[first].start, self._prev.end
        return node

    def _is_call(self) -> bool:
        """Whether a word is followed by values, which no type is."""
        following = self._tokens[self._index + 1 : self._index + 6]
        kinds = [token.token_type for token in following]
        if kinds[:1] == [TokenType.L_BRACKET]:
            return self._curr.token_type in (TokenType.ARRAY, TokenType.MAP)
        number, comma, close = TokenType.NUMBER, TokenType.COMMA, TokenType.R_PAREN
        is_sized = kinds[1:3] == [number, close] or kinds[1:5] == [number, comma, number, close]
        return kinds[:1] == [TokenType.L_PAREN] and not is_sized

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """INTERVAL 'text' [unit], with the text unchanged."""
        if not (self._is_next(TokenType.INTERVAL) and self._next and self._next.token_type is TokenType.STRING):
            return None
        self._advance()
        text = self._parse_string()
        unit = None
        if self._curr and self._curr.text.upper() in _INTERVAL_UNITS:
            unit = exp.Var(this=self._curr.text.upper())
            unit.update_positions(self._curr)
            self._advance()
        return self.expression(exp.Interval(this=text, unit=unit))

    def _parse_bitwise(self) -> exp.Expr | None:
        """A chain of || and of the operators of its precedence, from left to right."""
        this = self._parse_term()
        while self._curr:
            kind = self._curr.token_type
            following = self._next.token_type if self._next else None
            if kind is TokenType.DPIPE:
                self._advance()
                this = self.expression(exp.DPipe(this=this, expression=self._parse_term(), safe=True))
            elif kind in _OPERATORS:
                words = [self._taken()]
                this = self._operation(_OPERATORS[kind], words, this, self._parse_term())
            elif kind in _PAIRS and following is kind:
                words = [self._taken(), self._taken()]
                this = self._operation(_PAIRS[kind], words, this, self._parse_term())
            elif kind is TokenType.NOT and self._curr.text == "!" and following in (TokenType.RLIKE, TokenType.IRLIKE):
                words = [self._taken(), self._taken()]
                matched = self._operation(_OPERATORS[following], words, this, self._parse_term())
                this = self._operation("not", [], matched)
            else:
                break
        return this

    def _parse_named_operator(self, this: exp.Expr | None) -> exp.Expr | None:
        """x OPERATOR ([pg_catalog.]=) y, as psql writes it."""
        words = [self._prev]
        while self._curr and not self._is_next(TokenType.R_PAREN):
            words.append(self._taken())
        function = {**_OPERATORS, **_COMPARISONS}.get(words[-1].token_type)
        if function is None or not self._curr:
            self.raise_error("Expected an operator", words[-1])
        words.append(self._taken())
        return self._operation(str(function), words, this, self._parse_bitwise())

    def _parse_exponent(self) -> exp.Expr | None:
        this = self._parse_unary()
        while self._is_next(TokenType.CARET):
            words = [self._taken()]
            this = self._operation("power", words, this, self._parse_unary())
        return this

    def _operation(self, function: str, words: list[Token], *operands: exp.Expr | None) -> Any:
        """The call of `function` that an operator, written as `words`, denotes."""
        if None in operands:
            self.raise_error("Expected an operand")
        return self._owning(Operation(this=function, expressions=list(operands)), words)

    def _parse_ordered(self, parse_method: Callable[[], exp.Expr | None] | None = None) -> exp.Ordered | None:
        """x [ASC | DESC] [NULLS FIRST | NULLS LAST]; omitted parts are None."""
        this = parse_method() if parse_method else self._parse_disjunction()
        if this is None:
            return None
        first, descending, nulls_first = self._index, None, None
        if self._match(TokenType.ASC):
            descending = False
        elif self._match(TokenType.DESC):
            descending = True
        for word, is_first in (("FIRST", True), ("LAST", False)):
            if self._match_text_seq("NULLS", word):
                nulls_first = is_first
                break
        node = exp.Ordered(this=this, desc=descending, nulls_first=nulls_first)
        return self._owning(node, self._tokens[first : self._index])

    def _parse_limit(self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False) -> Any:
        """LIMIT, or FETCH FIRST … ROWS ONLY with its words."""
        first = self._index
        node = super()._parse_limit(this, top, skip_limit_token)
        return self._owning(node, self._tokens[first : self._index]) if isinstance(node, exp.Fetch) else node

    def _parse_offset(self, this: exp.Expr | None = None) -> exp.Expr | None:
        first = self._index
        node = super()._parse_offset(this)
        if isinstance(node, exp.Offset) and node is not this and self._prev.text.upper() in ("ROW", "ROWS"):
            return self._owning(node, self._tokens[max(first, self._index - 1) : self._index])
        return node

    def _parse_primary(self) -> exp.Expr | None:
        """A number, also one that begins with its point, as one literal; a text in pieces as all of them."""
        if self._is_next(TokenType.STRING) and self._next and self._next.token_type is TokenType.STRING:
            pieces = []
            while self._is_next(TokenType.STRING):
                token = self._taken()
                pieces.append(self._spanning(exp.Literal.string(token.text), token))
            return self.expression(exp.Concat(expressions=pieces))
        if self._is_next(TokenType.DOT) and self._next and self._next.token_type is TokenType.NUMBER:
            point = self._curr
            self._advance(2)
            return self._spanning(exp.Literal.number(f".{self._prev.text}"), point)
        return super()._parse_primary()

    def _parameter(self, name: str, first: Token | None = None) -> Any:
        """A parameter: ?, $1 or :name."""
        return self._spanning(exp.Placeholder(this=name), first or self._prev)

    def _parse_marked(self, mark: str, kind: TokenType | None = None) -> Any:
        """What follows the mark of a parameter at once: a number, or a name."""
        first, token = self._prev, self._curr
        is_name = bool(token) and (token.token_type is kind if kind else self._is_word())
        if not is_name or token.start != first.end + 1:
            return None
        self._advance()
        return self._parameter(mark + token.text.lower(), first)

    def _parse_extract(self) -> Any:
        """EXTRACT(field FROM x) as a function of the field's name and x."""
        word = self._function_word()
        field = self._parse_word()
        if not self._is_next(TokenType.FROM):
            self.raise_error("Expected FROM")
        return self._call(word, "extract", [self._taken()], [field, self._parse_bitwise()])

    def _parse_substring(self) -> Any:
        """SUBSTRING(x [FROM start] [FOR length]) with two or three arguments, or separated by commas."""
        word = self._function_word()
        parting: list[Token] = []
        args: list[exp.Expr | None] = list(self._parse_csv(self._parse_bitwise))
        for kind in (TokenType.FROM, TokenType.FOR):
            if len(args) == len(parting) + 1 and self._is_next(kind):
                parting.append(self._taken())
                args.append(self._parse_bitwise())
        return self._call(word, "substring", parting, args)

    def _parse_overlay(self) -> Any:
        """OVERLAY(x PLACING y FROM start [FOR length]), or separated by commas."""
        word = self._function_word()
        parting: list[Token] = []
        args: list[exp.Expr | None] = list(self._parse_csv(self._parse_bitwise))
        for separator in ("PLACING", "FROM", "FOR"):
            if len(args) == len(parting) + 1 and self._curr and self._curr.text.upper() == separator:
                parting.append(self._taken())
                args.append(self._parse_bitwise())
        return self._call(word, "overlay", parting, args)

    def _parse_position_in(self) -> Any:
        """POSITION(part IN x) as position of x and part."""
        word = self._function_word()
        part = self._parse_bitwise()
        if not self._is_next(TokenType.IN):
            self.raise_error("Expected IN")
        words = [self._taken()]
        return self._call(word, "position", words, [self._parse_bitwise(), part])

    def _parse_trim(self) -> Any:
        """TRIM([LEADING | TRAILING | BOTH] [characters] FROM x) or TRIM([LEADING | TRAILING | BOTH] [FROM] x [,
        characters]) as trim, ltrim or rtrim of x and characters."""
        word, side, words = self._function_word(), "BOTH", []
        if self._curr and self._curr.text.upper() in ("LEADING", "TRAILING", "BOTH") and self._is_word():
            side = self._curr.text.upper()
            words.append(self._taken())
        args: list[exp.Expr | None] = []
        if not self._is_next(TokenType.FROM):
            args += self._parse_csv(self._parse_bitwise)
        if self._is_next(TokenType.FROM) and len(args) < 2:
            words.append(self._taken())
            args = [*(self._parse_csv(self._parse_bitwise) if not args else [self._parse_bitwise()]), *args]
        name = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}[side]
        return self._call(word, name, words, args)

    def _parse_word(self) -> exp.Expr | None:
        """A bare or quoted word as a string."""
        if self._is_next(TokenType.STRING):
            return self._parse_string()
        token = self._curr
        if not token or not self._is_word():
            self.raise_error("Expected a field")
        self._advance()
        return self._spanning(exp.Literal.string(token.text.lower()), token)

    def _function_word(self) -> Token:
        """The name of the function whose arguments begin at the current token."""
        return self._tokens[self._index - 2]

    def _call(self, word: Token, name: str, words: list[Token], args: list[exp.Expr | None]) -> exp.Anonymous:
        """The function `name` at its `word`, with the `words` that separate its arguments."""
        node = exp.Anonymous(this=name, expressions=[arg for arg in args if arg is not None])
        node.update_positions(word)
        return self._owning(node, words)

    def _is_next(self, kind: TokenType) -> bool:
        return bool(self._curr) and self._curr.token_type is kind

    def _is_word(self) -> bool:
        return self._curr.text.isidentifier() and self._curr.token_type is not TokenType.IDENTIFIER

    def _taken(self) -> Token:
        self._advance()
        return self._prev

    def _owning(self, node: Any, words: Collection[Token]) -> Any:
        """The node, with these words recorded as its own."""
        if words:
            node.meta[OWN] = [*node.meta.get(OWN, ()), *((word.start, word.end) for word in words)]
        return node

    def _spanning(self, node: exp.Expr, first: Token) -> exp.Expr:
        """The node, spanning the text from `first` to the last token read."""
        node.meta["start"], node.meta["end"] = first.start, self._prev.end
        return node


class TextScanner(TokenizerCore):
    """sqlglot's scanner, for which a number after a dollar sign begins no tag: `$1,$2` are two parameters."""

    def _scan_string(self, start: str) -> bool:
        if start == "$" and not _DOLLAR_TAG.match(self.sql, self._start):
            self._add(TokenType.PARAMETER)
            return True
        return super()._scan_string(start)


_SETTINGS = tuple(signature(TokenizerCore).parameters)


class Text(RisingWave):
    """The dialect of statements; no token starts a command, all words are words, subscripts are as written."""

    INDEX_OFFSET = 0

    class Tokenizer(RisingWave.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar = {word: kind for word, kind in RisingWave.Tokenizer.KEYWORDS.items() if word != "?::"}

        def _init_core(self) -> TokenizerCore:
            plain = super()._init_core()
            return TextScanner(**{name: getattr(plain, name) for name in _SETTINGS})

    Parser = TextParser


DIALECT = Text()
