"""CREATE FUNCTION and CREATE AGGREGATE: the syntax of user functions, their checks, and the statement of a known one.

    CREATE [OR REPLACE] {FUNCTION | AGGREGATE} name ([argument] type, …)
        RETURNS {type | SETOF type | TABLE (column type, …)}
        LANGUAGE python
        [IMMUTABLE | STABLE | VOLATILE] [STRICT | RETURNS NULL ON NULL INPUT | CALLED ON NULL INPUT]
        AS $$ source $$
        [WITH (handler = 'name', row_wise = true, state = 'type')]

The clauses after RETURNS come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType

from relational.catalog.functions import FunctionCatalog
from relational.catalog.names import ObjectName, check_name
from relational.errors import BindError, CatalogError, ParseError
from relational.expr.bind import error_span, known_functions
from relational.expr.unbound import TextSpan
from relational.expr.window_functions import WindowKind
from relational.sql.context import BindContext
from relational.sql.ddl.options import Options, read_options
from relational.sql.ddl.show_create import quoted
from relational.sql.expressions import VOLATILE_FUNCTIONS
from relational.sql.lexer import CLOSING, OPENING, Piece, TokenReader
from relational.sql.names import read_name, schema_of
from relational.sql.statement import CreateFunction
from relational.types.data_type import DataType
from relational.types.schema import Field
from relational.udf.function import LANGUAGE, MOST_ARGUMENTS, FunctionKind, UserFunction, Volatility
from relational.udf.source import RETRACT, defines

HANDLER, ROW_WISE, STATE = "handler", "row_wise", "state"
FUNCTION_OPTIONS = (HANDLER, ROW_WISE)
AGGREGATE_OPTIONS = (*FUNCTION_OPTIONS, STATE)
_CLAUSES = ("LANGUAGE", "AS", "STRICT", "RETURNS", "CALLED", "WITH", *(each.name for each in Volatility))


@dataclass(slots=True)
class FunctionSyntax:
    """The clauses after RETURNS; None: not written."""

    language: str | None = None
    source: str | None = None
    volatility: Volatility | None = None
    is_strict: bool | None = None
    options: Options | None = None


def bind_create_function(piece: Piece, context: BindContext) -> CreateFunction:
    """CREATE [OR REPLACE] FUNCTION or AGGREGATE. ParseError and BindError at the span; FunctionsNotAllowed."""
    reader = TokenReader(piece)
    reader.expect("CREATE")
    replaces = reader.accept("OR", "REPLACE")
    is_aggregate = reader.accept("AGGREGATE")
    if not is_aggregate:
        reader.expect("FUNCTION")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name, span = read_name(reader, "the function")
    arguments = tuple(read_fields(reader, "an argument"))
    reader.expect("RETURNS")
    kind, returns, column = _read_result(reader)
    if is_aggregate and kind is FunctionKind.TABLE:
        raise BindError("an aggregate returns one value of each group", **error_span(span))
    syntax = FunctionSyntax()
    while not reader.is_done:
        _read_clause(reader, syntax)
    if syntax.language is None or syntax.source is None:
        raise reader.fail(f"LANGUAGE {LANGUAGE} and AS $$ source $$ are expected")
    options = syntax.options or Options()
    handler = options.take(HANDLER, _handler_of, name.name)
    is_row_wise = options.take(ROW_WISE, _boolean_of, False)
    state = options.take(STATE, _type_of, None) if is_aggregate else None
    if is_aggregate:
        options.finish("an aggregate", AGGREGATE_OPTIONS)
    options.finish("a function", FUNCTION_OPTIONS)
    draft = UserFunction(
        name.name, arguments, returns, syntax.source, handler, FunctionKind.AGGREGATE if is_aggregate else kind,
        syntax.volatility or Volatility.VOLATILE, bool(syntax.is_strict), is_row_wise, column, state,
        state is not None and defines(syntax.source, RETRACT),
    )
    check_definition(draft, span)
    schema = schema_of(context.catalog, name.schema, name.database, span)
    return CreateFunction(FunctionCatalog(draft, schema.id), replaces, if_not_exists)


def check_definition(function: UserFunction, span: TextSpan | None = None) -> None:
    """BindError for a function that cannot be called: by its name, or with its arguments. Its source is checked when it
    is stored."""
    try:
        check_name(function.name, "a function")
    except CatalogError as error:
        raise BindError(str(error), **error_span(span)) from error
    if function.name in _taken_names():
        raise BindError(f"{function.name} is a function of SQL: choose another name", **error_span(span))
    if len(function.arguments) > MOST_ARGUMENTS:
        raise BindError(f"a function takes {MOST_ARGUMENTS} arguments at most", **error_span(span))
    if function.kind is FunctionKind.AGGREGATE and not function.arguments:
        raise BindError("an aggregate takes one argument at least", **error_span(span))
    if function.state is not None and (function.is_row_wise or function.handler != function.name):
        raise BindError("an aggregate with a state has the functions accumulate, finish and, if rows can be deleted, "
                        "retract: no handler, and none that is row-wise", **error_span(span))
    named = [each.name for each in function.arguments if each.name]
    twice = next((each for each in named if named.count(each) > 1), None)
    if twice is not None:
        raise BindError(f"argument {twice!r} appears twice", **error_span(span))


def _taken_names() -> frozenset[str]:
    windows = (each.value for each in WindowKind)
    return frozenset((*known_functions(), *VOLATILE_FUNCTIONS, *windows, "grouping", "concat", "pg_typeof"))


def _read_result(reader: TokenReader) -> tuple[FunctionKind, DataType, str]:
    """(kind, type of a value or row, name of the only column) after RETURNS."""
    if reader.accept("SETOF"):
        return FunctionKind.TABLE, reader.data_type(_begins_clause), ""
    if not reader.accept("TABLE"):
        return FunctionKind.SCALAR, reader.data_type(_begins_clause), ""
    span = reader.span
    columns = read_fields(reader, "a column")
    if not columns or not all(each.name for each in columns):
        raise ParseError("TABLE (column type, …) is expected here", **error_span(span))
    return (FunctionKind.TABLE, *row_type(columns))


def row_type(columns: Sequence[Field]) -> tuple[DataType, str]:
    """The type of the rows of a table function, and the name of its column, if there is only one."""
    if len(columns) == 1:
        return columns[0].data_type, columns[0].name
    return DataType.struct(columns), ""


def _read_clause(reader: TokenReader, syntax: FunctionSyntax) -> None:
    span = reader.span
    if syntax.language is None and reader.accept("LANGUAGE"):
        syntax.language = _word(reader).lower()
        if syntax.language != LANGUAGE:
            raise BindError(f"LANGUAGE is {LANGUAGE}, not {syntax.language}", **error_span(span))
    elif syntax.source is None and reader.accept("AS"):
        syntax.source = _read_source(reader)
    elif syntax.options is None and reader.accept("WITH"):
        syntax.options = read_options(reader)
    elif syntax.is_strict is None and (reader.accept("STRICT") or reader.accept("RETURNS", "NULL", "ON", "NULL",
                                                                                "INPUT")):
        syntax.is_strict = True
    elif syntax.is_strict is None and reader.accept("CALLED", "ON", "NULL", "INPUT"):
        syntax.is_strict = False
    else:
        volatility = next((each for each in Volatility if reader.accept(each.name)), None)
        if volatility is None or syntax.volatility is not None:
            raise reader.fail("this is no clause of CREATE FUNCTION, or it appears twice")
        syntax.volatility = volatility


def _word(reader: TokenReader) -> str:
    """A word, or a text in quotes."""
    token = reader.peek()
    return reader.next().text if token is not None and token.token_type is TokenType.STRING else reader.name("a word")


def _read_source(reader: TokenReader) -> str:
    """$$…$$, $tag$…$tag$ or '…'."""
    start, end = reader.span
    token = reader.next()
    source = reader.text_between(start, end)
    if token.token_type is TokenType.STRING and source[:1] == "'":
        return source[1:-1].replace("''", "'")
    if not source.startswith("$") or len(source) < 4:
        raise ParseError("the source text is expected here: AS $$ … $$", start=start, end=end)
    tag = source.index("$", 1) + 1
    return source[tag:-tag]


def read_fields(reader: TokenReader, what: str) -> list[Field]:
    """([name] type, …); a name that is missing is empty."""
    reader.expect("(")
    found: list[Field] = []
    while not reader.accept(")"):
        if found:
            reader.expect(",")
        found.append(_field(reader, what))
    return found


def _field(reader: TokenReader, what: str) -> Field:
    start, name_end = reader.span
    end, count, depth = start, 0, 0
    while (token := reader.peek()) is not None:
        if depth == 0 and token.token_type in (*CLOSING, TokenType.COMMA):
            break
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        end, count = reader.span[1], count + 1
        reader.next()
    if not count:
        raise reader.fail(f"the type of {what} is expected here")
    text = reader.text_between(start, end)
    try:
        return Field("", DataType.parse(text))
    except BindError as unnamed:
        if count == 1:
            raise BindError(unnamed.message, start=start, end=end) from unnamed
    name = TokenReader(reader.piece_between(start, name_end)).name(what)
    try:
        return Field(name, DataType.parse(reader.text_between(name_end, end)))
    except BindError as error:
        raise BindError(error.message, start=name_end, end=end) from error


def _begins_clause(token: Token) -> bool:
    return token.text.upper() in _CLAUSES


def _handler_of(text: str) -> str:
    if not text.isidentifier():
        raise ValueError("the name of a function of the source")
    return text


def _type_of(text: str) -> DataType:
    try:
        return DataType.parse(text)
    except BindError:
        raise ValueError("the type of a state") from None


def _boolean_of(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def function_definition(function: UserFunction, name: ObjectName) -> str:
    """The statement that creates a function in its current version."""
    arguments = ", ".join(f"{quoted(each.name)} {each.data_type}" if each.name else str(each.data_type)
                          for each in function.arguments)
    what = "AGGREGATE" if function.kind is FunctionKind.AGGREGATE else "FUNCTION"
    null_input = "STRICT" if function.is_strict else "CALLED ON NULL INPUT"
    tag = "$$"
    while tag in function.source:
        tag = f"${tag[1:-1]}_$"
    options = {HANDLER: f"'{function.handler}'"} if function.handler != function.name else {}
    if function.is_row_wise:
        options[ROW_WISE] = "true"
    if function.state is not None:
        options[STATE] = f"'{function.state}'"
    given = f" WITH ({', '.join(f'{key} = {value}' for key, value in options.items())})" if options else ""
    return (f"CREATE {what} {'.'.join(map(quoted, name.parts))} ({arguments}) RETURNS {function.result} LANGUAGE "
            f"{LANGUAGE} {function.volatility.upper()} {null_input} AS {tag}{function.source}{tag}{given}")
