import io

import pyarrow as pa
import pytest
from rich.console import Console

from stream.cli.terminal import print_error, print_rows, split_statements


def printed(function, *arguments, **keywords):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    function(console, *arguments, **keywords)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';'; x", ["SELECT ';'"], " x"),
        ("SELECT 'it''s;'; ", ["SELECT 'it''s;'"], " "),
        ('SELECT "a;b";', ['SELECT "a;b"'], ""),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end"], ""),
        ("SELECT /* ; */ 1;;", ["SELECT /* ; */ 1"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("AS $$a; 'b$$; x", ["AS $$a; 'b$$"], " x"),
        ("AS $t1$ $$; $t1$; x; $1;$2;", ["AS $t1$ $$; $t1$", "x", "$1", "$2"], ""),
        ("AS $$ open; $a$", [], "AS $$ open; $a$"),
    ],
)
def test_statements_end_at_semicolons_outside_quotes(text, statements, rest):
    assert split_statements(text) == (statements, rest)


def test_rows_are_a_grid_with_nulls_and_a_count():
    text = printed(print_rows, pa.table({"region": ["EUROPE", None], "amount": [42, 7]}))
    assert "EUROPE" in text and "NULL" in text and "2 rows" in text


def test_markup_in_values_is_text():
    assert "[red]" in printed(print_rows, pa.table({"v": ["[red]"]}))


def test_long_results_say_what_they_leave_out():
    assert "90 not shown" in printed(print_rows, pa.table({"n": range(100)}), most_rows=10)


def test_an_error_is_its_kind_and_its_message():
    assert printed(print_error, ValueError("no [such] column")).strip() == "ValueError no [such] column"
