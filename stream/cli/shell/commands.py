"""The backslash commands, in psql's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

import click

from hummock.base.process import installed_version
from stream.cli.shell.describe import LISTS, Description, describe, is_pattern
from stream.cli.shell.help import STATEMENTS, statement_help
from stream.cli.shell.options import FORMATS, TABLE
from stream.cli.shell.shell import CommandError, Shell
from stream.cli.shell.statements import Command, InputSplitter, Statement
from stream.session.session import Session

WATCH_SECONDS = 2.0
SWITCHES = {"on": True, "off": False, "true": True, "false": False}
_WATCH_OPTION = re.compile(r"(?:(?P<name>i|interval|c|count)=)?(?P<number>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """`usage`: with its arguments, as in help. `least`, `most`: how many arguments it takes. `action`: whether it, and
    what it executed, succeeded."""

    usage: str
    help: str
    action: Callable[[Shell, Sequence[str]], bool]
    least: int = 0
    most: int = 1


class CommandTable:
    """The commands by name."""

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self.specs = specs

    def run(self, shell: Shell, command: Command) -> bool:
        """Executes a command; whether what it executed succeeded. CommandError."""
        arguments = command.arguments
        found = self.specs.get(command.name)
        if found is None and command.name.endswith("+"):
            found = self.specs.get(command.name[:-1])
        if found is None:
            raise CommandError(f"there is no command {command.name}{self._hint(command.name)}; \\? lists them")
        if not found.least <= len(arguments) <= found.most:
            raise CommandError(f"{found.usage}: {found.help}")
        return found.action(shell, arguments)

    def _hint(self, name: str) -> str:
        folded = name.lower()
        near = [folded] if folded in self.specs else get_close_matches(folded, self.specs, n=1, cutoff=0.5)
        return f"; did you mean {near[0]}?" if near else ""


# -- catalog -------------------------------------------------------------------------------------------


def _listing(name: str) -> Callable[[Shell, Sequence[str]], bool]:
    def show(shell: Shell, arguments: Sequence[str]) -> bool:
        if name == "\\d" and arguments and not is_pattern(arguments[0]):
            return _show(shell, describe(shell.session, arguments[0]))
        return _show(shell, LISTS[name](shell.session, arguments[0] if arguments else None))

    return show


def _show(shell: Shell, description: Description) -> bool:
    rows, output = description.rows, shell.output
    if description.shown is not None and output.format == TABLE:
        rows = rows.select(description.shown)
    output.rows(rows, description.title, description.footer)
    return True


# -- settings ------------------------------------------------------------------------------------------


def _switch(value: bool, arguments: Sequence[str]) -> bool:
    """What a switch is after a command that names its value, or turns it over. CommandError."""
    if not arguments:
        return not value
    if arguments[0].lower() not in SWITCHES:
        raise CommandError(f"{arguments[0]!r} is neither on nor off")
    return SWITCHES[arguments[0].lower()]


def _timing(shell: Shell, arguments: Sequence[str]) -> bool:
    shell.state.shows_time = _switch(shell.state.shows_time, arguments)
    shell.output.note(f"Timing is {_on(shell.state.shows_time)}.")
    return True


def _expanded(shell: Shell, arguments: Sequence[str]) -> bool:
    shell.output.options.is_expanded = _switch(shell.output.options.is_expanded, arguments)
    shell.output.note(f"Expanded display is {_on(shell.output.options.is_expanded)}.")
    return True


def _on(value: bool) -> str:
    return "on" if value else "off"


def _pset(shell: Shell, arguments: Sequence[str]) -> bool:
    options = shell.output.options
    if len(arguments) == 2:
        name, value = arguments
        if name == "format":
            options.choose(value)
        elif name == "rows" and value.isdecimal():
            options.max_rows = int(value)
        elif name == "pager":
            options.has_pager = _switch(options.has_pager, [value])
        elif name == "expanded":
            options.is_expanded = _switch(options.is_expanded, [value])
        else:
            raise CommandError(f"\\pset {name} {value}: {PSET_HELP}")
    elif arguments and arguments[0] not in PSET:
        raise CommandError(f"\\pset {arguments[0]}: {PSET_HELP}")
    rows = "default" if options.max_rows is None else options.max_rows or "all"
    values = {"format": shell.output.format, "rows": rows, "pager": _on(options.has_pager),
              "expanded": _on(options.is_expanded)}
    for name in arguments[:1] or PSET:
        shell.output.note(f"{name} is {values[name]}")
    return True


PSET = ("format", "rows", "pager", "expanded")
PSET_HELP = f"the options are format ({', '.join(FORMATS)}), rows (a number, 0 for all), pager and expanded (on, off)"

# -- input and output ----------------------------------------------------------------------------------


def _output(shell: Shell, arguments: Sequence[str]) -> bool:
    if arguments:
        shell.output.open(Path(arguments[0]))
    else:
        shell.output.close()
    return True


def _include(shell: Shell, arguments: Sequence[str]) -> bool:
    return shell.run_file(Path(arguments[0]))


def _edit(shell: Shell, arguments: Sequence[str]) -> bool:
    edited = click.edit(shell.state.last, extension=".sql")
    if edited is None:
        shell.output.note("nothing was saved")
        return True
    shell.output.note(edited.strip())
    splitter = InputSplitter()
    items = [item for line in edited.splitlines() for item in splitter.feed(line)]
    return shell.run_items([*items, *splitter.finish()])


def _execute(shell: Shell, arguments: Sequence[str]) -> bool:
    shell.execute(_last_query(shell))
    return True


def _execute_expanded(shell: Shell, arguments: Sequence[str]) -> bool:
    with shell.expanded(True):
        return _execute(shell, arguments)


def _last_query(shell: Shell) -> Statement:
    if shell.state.query is None:
        raise CommandError("there is no query yet that could be executed again")
    return shell.state.query


def _watch(shell: Shell, arguments: Sequence[str]) -> bool:
    """Until it is interrupted, or as often as it was told."""
    seconds, times = WATCH_SECONDS, None
    for argument in arguments:
        match = _WATCH_OPTION.fullmatch(argument)
        if match is None:
            raise CommandError(f"\\watch {argument}: a number of seconds, or i=SECONDS and c=TIMES, is expected")
        if (match["name"] or "i").startswith("c"):
            times = int(float(match["number"]))
        else:
            seconds = float(match["number"])
    query, done = _last_query(shell), 0
    while times is None or done < times:
        if done:
            shell.sleep(seconds)
        if shell.output.is_terminal:
            shell.output.clear()
        shell.execute(query, f"{datetime.now().astimezone():%a %d %b %Y %H:%M:%S} (every {seconds:g} s)")
        done += 1
    return True


# -- the shell -----------------------------------------------------------------------------------------


def _quit(shell: Shell, arguments: Sequence[str]) -> bool:
    shell.state.is_over = True
    return True


def _echo(shell: Shell, arguments: Sequence[str]) -> bool:
    shell.output.text(" ".join(arguments))
    return True


def _connection(shell: Shell, arguments: Sequence[str]) -> bool:
    role = "writes" if isinstance(shell.session, Session) else "reads"
    shell.output.text(f"This shell {role} {shell.url}, at epoch {shell.session.committed_epoch}; "
                      f"Hummock {installed_version()}.")
    return True


def _help(shell: Shell, arguments: Sequence[str]) -> bool:
    width = max(len(each.usage) for each in SPECS.values())
    lines = [f"  {each.usage.ljust(width)}  {each.help}" for each in SPECS.values()]
    shell.output.text("\n".join([
        "A statement ends with a semicolon, and may have several lines. Ctrl-C ends it, Ctrl-D leaves the shell.", "",
        *lines]))
    return True


def _sql_help(shell: Shell, arguments: Sequence[str]) -> bool:
    if not arguments:
        shell.output.text("\\h NAME shows one of:\n  " + "\n  ".join(STATEMENTS))
        return True
    found = statement_help(" ".join(arguments))
    if found is None:
        name = " ".join(arguments).upper()
        near = get_close_matches(name, STATEMENTS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandError(f"there is no statement {name}{hint}; \\h lists them")
    shell.output.text(found)
    return True


SPECS: Mapping[str, CommandSpec] = {
    "\\?": CommandSpec("\\?", "these commands (also: help)", _help),
    "\\h": CommandSpec("\\h [STATEMENT]", "syntax of SQL statements", _sql_help, most=6),
    "\\q": CommandSpec("\\q", "leave (also: exit, quit, Ctrl-D)", _quit, most=0),
    "\\d": CommandSpec("\\d [NAME]", "tables, views, sources and sinks; or the columns, keys and definition of one",
                       _listing("\\d")),
    "\\dt": CommandSpec("\\dt [PATTERN]", "tables", _listing("\\dt")),
    "\\dv": CommandSpec("\\dv [PATTERN]", "views", _listing("\\dv")),
    "\\dm": CommandSpec("\\dm [PATTERN]", "materialized views", _listing("\\dm")),
    "\\di": CommandSpec("\\di [PATTERN]", "indexes", _listing("\\di")),
    "\\ds": CommandSpec("\\ds [PATTERN]", "sources", _listing("\\ds")),
    "\\dk": CommandSpec("\\dk [PATTERN]", "sinks", _listing("\\dk")),
    "\\df": CommandSpec("\\df [PATTERN]", "user functions; with a pattern also those of SQL", _listing("\\df")),
    "\\dn": CommandSpec("\\dn", "schemas", _listing("\\dn"), most=0),
    "\\l": CommandSpec("\\l", "databases", _listing("\\l"), most=0),
    "\\g": CommandSpec("\\g", "execute the statement before it, or the last query", _execute, most=0),
    "\\gx": CommandSpec("\\gx", "as \\g, each row as a record", _execute_expanded, most=0),
    "\\watch": CommandSpec("\\watch [SECONDS] [c=TIMES]", "repeat a query until Ctrl-C", _watch, most=2),
    "\\x": CommandSpec("\\x [on|off]", "show each row as a record", _expanded),
    "\\timing": CommandSpec("\\timing [on|off]", "show how long statements take", _timing),
    "\\pset": CommandSpec("\\pset [NAME [VALUE]]", f"format ({', '.join(FORMATS)}), rows, pager, expanded", _pset,
                          most=2),
    "\\o": CommandSpec("\\o [FILE]", "write results to a file, until \\o", _output),
    "\\i": CommandSpec("\\i FILE", "execute a file", _include, least=1),
    "\\e": CommandSpec("\\e", "edit the last statement in $EDITOR and execute it", _edit, most=0),
    "\\echo": CommandSpec("\\echo [TEXT]", "write a text", _echo, most=100),
    "\\conninfo": CommandSpec("\\conninfo", "the store, and its committed epoch", _connection, most=0),
}
COMMANDS = CommandTable(SPECS)
