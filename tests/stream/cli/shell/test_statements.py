import random

import pytest

from relational.sql.lexer import LexerState, Piece, read_line
from stream.cli.shell import statements
from stream.cli.shell.statements import ENDING, Command, InputSplitter, Statement, command_of, is_complete
from tests.support.drivers.seeds import run_seed


def items(text):
    splitter = InputSplitter()
    return [*(item for line in text.split("\n") for item in splitter.feed(line)), *splitter.finish()]


def items_of_whole_texts(lines):
    """Oracle: reads all that is not complete again with each line."""
    text, first, found = "", 1, []

    def statement(start, end, ending=None):
        begin = end - len(text[start:end].lstrip())
        return Statement(text[start:end].strip(), first + text.count("\n", 0, begin), ending)

    for number, line in enumerate(lines, 1):
        if Piece(text, 0, len(text)).is_empty and (command := command_of(line)) is not None:
            text = ""
            found.append(command)
            continue
        text, first = (text, first) if text.strip() else ("", number)
        text, start = f"{text}{line}\n", 0
        for end in read_line(text, LexerState())[0]:
            found += [] if end.is_blank else [statement(start, end.at)]
            start = end.at + 1
        ending = ENDING.search(text[start:].rstrip())
        if ending is not None:
            before = text[start : start + ending.start()]
            is_blank = Piece(before, 0, len(before)).is_empty
            if is_blank or read_line(before + ";", LexerState())[0]:
                command = Command(f"\\{ending['name']}", (ending["arguments"] or "").strip())
                found.append(command if is_blank else statement(start, start + ending.start(), command))
                start = len(text)
        first, text = first + text.count("\n", 0, start), text[start:]
    return found if Piece(text, 0, len(text)).is_empty else [*found, statement(0, len(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1; SELECT 2", [Statement("SELECT 1", 1), Statement("SELECT 2", 1)]),
        ("\n\nSELECT\n 1;\n\n-- why\nSELECT 2;", [Statement("SELECT\n 1", 3), Statement("-- why\nSELECT 2", 6)]),
        ("SELECT 1;\nSELECT ';\n;'\n;SELECT 3", [Statement("SELECT 1", 1), Statement("SELECT ';\n;'", 2),
                                               Statement("SELECT 3", 4)]),
        ("\\d\nSELECT 1;\n  \\dt orders  ", [Command("\\d"), Statement("SELECT 1", 2), Command("\\dt", "orders")]),
        ("SELECT '\n\\d\n';", [Statement("SELECT '\n\\d\n'", 1)]),
        ("-- a comment\n\\d", [Command("\\d")]),
        ("exit", [Command("\\q")]),
        (" QUIT ; ", [Command("\\q")]),
        ("help\n", [Command("\\?")]),
        (".tables\n", [Command("\\d")]),
        (".schema t;\n", [Command("\\d", "t")]),
        (".quit\n", [Command("\\q")]),
        ("SELECT 1\nexit", [Statement("SELECT 1\nexit", 1)]),
        ("SELECT 1 \\gx", [Statement("SELECT 1", 1, Command("\\gx"))]),
        ("SELECT 0; SELECT\n1 \\watch 5 c=2", [Statement("SELECT 0", 1), Statement("SELECT\n1", 1,
                                                                              Command("\\watch", "5 c=2"))]),
        ("SELECT '\\gx'", [Statement("SELECT '\\gx'", 1)]),
        ("SELECT ' \\gx", [Statement("SELECT ' \\gx", 1)]),
        ("", []),
        (" ; ;", []),
    ],
)
def test_input_is_parted_into_statements_and_commands(text, expected):
    assert items(text) == expected


PARTS = ["SELECT 1", "'", '"', ";", "--", "/*", "*/", "$$", "$a$", "E'", "\\", "''", " ", "x", "(;)", "exit",
         "\\g", "\\gx", "\\watch 2", "\\d t", "\n", "\n", "\n"]


def test_random_input_is_parted_as_by_reading_whole_texts_again():
    seed = run_seed()
    rng = random.Random(seed)
    seen = 0
    for _ in range(3_000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randrange(24)))
        found = items(text)
        assert found == items_of_whole_texts(text.split("\n")), (seed, text)
        seen += len(found)
    assert seen > 3_000


@pytest.mark.parametrize(
    ("first", "line", "last"),
    [
        ("INSERT INTO t VALUES", "('x;y'),", "('');"),
        ("INSERT INTO t VALUES", "('x\\y'),", "('') \\g"),
        ("SELECT '", "it''s; \\", "';"),
        ("SELECT E'", "it\\'s;", "';"),
        ("AS $$", "a; 'b", "$$;"),
        ("/*", "a; \\ /* b */", "*/ SELECT 1;"),
        ("--", "-- a; \\", "SELECT 1;"),
    ],
)
def test_each_line_is_read_once(first, line, last, monkeypatch):
    read = 0

    def counted(text, state):
        nonlocal read
        read += len(text)
        return read_line(text, state)

    monkeypatch.setattr(statements, "read_line", counted)
    text = "\n".join([first, *[line] * 2_000, last])
    assert [item.line for item in items(text)] == [1] and is_complete(text)
    assert read <= 3 * len(text)  # once for the items, once for `is_complete`, and what precedes a command again


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("\\?", "\\?", []),
        ("\\o 'a b.csv'", "\\o", ["a b.csv"]),
        ("\\o 'it''s'", "\\o", ["it's"]),
        ('\\d "Odd name"', "\\d", ['"Odd name"']),
        ('\\d old."Odd name"  x', "\\d", ['old."Odd name"', "x"]),
        ("\\d+ t", "\\d+", ["t"]),
        ("\\", "\\", []),
    ],
)
def test_commands_have_arguments(line, name, arguments):
    command = command_of(line)
    assert (command.name, command.arguments) == (name, arguments)


@pytest.mark.parametrize("text", ["", "  ", "SELECT 1;", "SELECT\n1;", "\\d", "exit", "SELECT 1 \\g", "-- nothing",
                                  "SELECT 1;  -- one"])
def test_complete_input(text):
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "AS $$ ; ", "SELECT /* ;"])
def test_input_that_goes_on(text):
    assert not is_complete(text)


def test_what_changes_the_catalog_is_known():
    assert Statement("/* x */ create table t (a int)", 1).is_ddl
    assert not Statement("SELECT 1 AS create", 1).is_ddl
