import io

from rich.console import Console

from stream.cli.terminal import print_error


def test_an_error_is_its_kind_and_its_message():
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_error(console, ValueError("no [such] column"))
    assert console.file.getvalue().strip() == "ValueError no [such] column"
