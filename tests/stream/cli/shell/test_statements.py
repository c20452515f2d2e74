import pytest

from stream.cli.shell.statements import Command, InputSplitter, Statement, command_of, is_complete


def items(text):
    splitter = InputSplitter()
    return [*(item for line in text.split("\n") for item in splitter.feed(line)), *splitter.finish()]


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
