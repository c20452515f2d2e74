import io

import pyarrow as pa
from rich.console import Console

from stream.cli.terminal import print_error, print_rows


def printed(function, *arguments, **keywords):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    function(console, *arguments, **keywords)
    return console.file.getvalue()


def test_rows_are_a_grid_with_nulls_and_a_count():
    text = printed(print_rows, pa.table({"region": ["EUROPE", None], "amount": [42, 7]}))
    assert "EUROPE" in text and "NULL" in text and "2 rows" in text


def test_markup_in_values_is_text():
    assert "[red]" in printed(print_rows, pa.table({"v": ["[red]"]}))


def test_long_results_say_what_they_leave_out():
    assert "90 not shown" in printed(print_rows, pa.table({"n": range(100)}), most_rows=10)


def test_an_error_is_its_kind_and_its_message():
    assert printed(print_error, ValueError("no [such] column")).strip() == "ValueError no [such] column"
