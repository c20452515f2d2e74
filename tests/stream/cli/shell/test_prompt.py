"""The prompt as somebody types, through prompt_toolkit's own pipe in place of a terminal."""

import builtins
import json
import os
import signal
import stat
import threading
import time

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import stream
from stream.cli.shell import prompt as prompts
from stream.cli.shell.history import HistoryFile
from stream.cli.shell.loop import InteractiveShell
from stream.cli.shell.prompt import FIRST, FURTHER, LinePrompt, new_prompt
from tests.stream.cli.shell.conftest import Terminal, new_console

ENTER, TAB, CONTROL_C, CONTROL_D, UP = "\r", "\t", "\x03", "\x04", "\x1b[A"


@pytest.fixture
def typed(shop, tmp_path):
    """What the shell writes while somebody types."""

    def run(*keys, session=shop):
        """Keys, then for each completion the text that it gives and the keys that follow it."""
        console = new_console(session, out=Terminal(), format="csv", is_interactive=True)
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            pipe.send_text(keys[0])
            shell = InteractiveShell(console.shell, HistoryFile(tmp_path / "history"))
            thread = threading.Thread(target=follow, args=(shell, pipe, keys[1:]))
            thread.start()
            shell.run()
            thread.join()
        return console.out.getvalue() + console.errors.getvalue()

    def follow(shell, pipe, keys):
        for text, further in zip(keys[::2], keys[1::2], strict=True):
            begun = time.monotonic()
            while shell._prompt._session.default_buffer.text != text and time.monotonic() - begun < 20:
                time.sleep(0.01)
            pipe.send_text(further)

    return run


def test_statements_of_several_lines_are_executed_until_the_end(typed, tmp_path):
    keys = f"SELECT 1 AS a;{ENTER}SELECT{ENTER}2 AS b{ENTER};{ENTER}\\echo c{ENTER}{CONTROL_D}"
    assert typed(keys) == "a\n1\nb\n2\nc\n"
    assert HistoryFile(tmp_path / "history").entries() == ["SELECT 1 AS a;", "SELECT\n2 AS b\n;", "\\echo c"]
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q"])
def test_words_leave_the_shell(typed, word):
    assert typed(f"{word}{ENTER}SELECT 1 AS a;{ENTER}{CONTROL_D}") == ""


def test_control_c_clears_the_input_and_the_shell_goes_on(typed):
    assert typed(f"SELECT{ENTER}'{CONTROL_C}SELECT 1 AS a;{ENTER}{CONTROL_C}{CONTROL_C}exit{ENTER}") == "a\n1\n"


def test_an_error_points_at_the_text_and_the_shell_goes_on(typed):
    text = typed(f"SELECT 1,{ENTER}  nope;{ENTER}SELECT 1 AS a;{ENTER}{CONTROL_D}")
    assert text == "a\n1\nBindError: there is no column 'nope'\n2 |   nope\n      ^^^^\n"


def test_tab_completes_names_and_keywords(typed):
    rest = f" WHERE region = 'ASIA';{ENTER}{CONTROL_D}"
    assert typed(f"SELECT region FROM tot{TAB}", "SELECT region FROM totals", rest) == "region\nASIA\n"
    assert typed(f"sel{TAB}", "select", f" 1 as a;{ENTER}{CONTROL_D}") == "a\n1\n"


def test_a_new_table_is_completed(typed):
    with stream.connect("memory://") as db:
        keys = f"CREATE TABLE fresh (a INT);{ENTER}SELECT COUNT(*) AS n FROM fre{TAB}"
        completed = "SELECT COUNT(*) AS n FROM fresh"
        assert typed(keys, completed, f";{ENTER}{CONTROL_D}", session=db) == "n\n0\n"


def test_the_history_of_another_shell_is_there(typed):
    typed(f"SELECT 'x' AS a;{ENTER}{CONTROL_D}")
    assert typed(f"{UP}{ENTER}{CONTROL_D}") == "a\nx\n"


def test_secrets_are_in_no_history(typed, tmp_path):
    typed(f"SELECT 'http://ann:s3cret@host' AS a;{ENTER}{CONTROL_D}")
    assert "s3cret" not in (tmp_path / "history").read_text()


@pytest.mark.usefixtures("heeds_interrupts")
def test_control_c_ends_a_statement_and_not_the_shell(shop, tmp_path):
    console = new_console(shop, format="csv", is_interactive=True)
    forever = ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 900000000) "
               "SELECT MAX(n) FROM r;")
    is_over = threading.Event()

    def press():
        # the interpreter drops an interrupt that arrives in a destructor: a user presses again
        for pause in (0.3, 1, 1, 1):
            if is_over.wait(pause):
                return
            os.kill(os.getpid(), signal.SIGINT)

    shell = InteractiveShell(console.shell, HistoryFile(tmp_path / "history"))
    user = threading.Thread(target=press)
    user.start()
    try:
        shell.execute(forever)
    finally:
        is_over.set()
        user.join()
    shell.execute("SELECT 1 AS a;")
    assert (console.out.getvalue(), console.errors.getvalue()) == ("a\n1\n", "\ninterrupted\n")


@pytest.mark.usefixtures("heeds_interrupts")
def test_control_c_in_a_pipe_ends_the_command(shop, monkeypatch):
    console = new_console(shop)
    monkeypatch.setattr(shop, "sql", lambda text: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        console.run("SELECT 1;")


def test_an_error_of_the_shell_itself_ends_a_statement_only_at_a_prompt(shop, monkeypatch):
    def failing(text):
        raise RuntimeError("a bug")

    monkeypatch.setattr(shop, "sql", failing)
    assert new_console(shop, is_interactive=True).run("SELECT 1;") == "RuntimeError: a bug\n"
    with pytest.raises(RuntimeError):
        new_console(shop).run("SELECT 1;")


def test_without_prompt_toolkit_lines_are_read_with_the_same_history(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "is_installed", lambda package: False)
    history = HistoryFile(tmp_path / "history")
    history.append("SELECT\n0 AS z;")
    lines, shown = iter(["SELECT", "1 AS a;", "\\q"]), []
    monkeypatch.setattr(builtins, "input", lambda prompt: shown.append(prompt) or next(lines))
    console = new_console(shop, format="csv", is_interactive=True)
    InteractiveShell(console.shell, history).run()
    assert (console.out.getvalue(), shown) == ("a\n1\n", [FIRST, FURTHER, FIRST])
    assert history.entries() == ["SELECT\n0 AS z;", "SELECT\n1 AS a;", "\\q"]


def test_readline_completes_the_word_before_the_cursor(tmp_path, monkeypatch):
    readline = pytest.importorskip("readline")
    from stream.cli.shell.completion import Candidate

    asked = []
    monkeypatch.setattr(readline, "get_line_buffer", lambda: "SELECT old.ord FROM t")
    monkeypatch.setattr(readline, "get_begidx", lambda: 7)
    monkeypatch.setattr(readline, "get_endidx", lambda: 14)
    LinePrompt(lambda before, after: asked.append((before, after)) or [Candidate("orders", 3, "table")],
               HistoryFile(tmp_path / "history"))
    complete = readline.get_completer()
    assert [complete("old.ord", 0), complete("old.ord", 1)] == ["old.orders", None]
    assert asked == [("SELECT old.ord", " FROM t")]


def test_the_best_prompt_is_taken(tmp_path):
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        assert type(new_prompt(lambda before, after: [], HistoryFile(tmp_path / "h"))).__name__ == "EditorPrompt"


def test_the_history_file_is_of_json_lines(tmp_path):
    HistoryFile(tmp_path / "h").append("a\n'b'")
    assert json.loads((tmp_path / "h").read_text()) == "a\n'b'"
