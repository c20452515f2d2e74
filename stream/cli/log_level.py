"""`--log-level`, which each command has: where the records of the library go."""

from __future__ import annotations

import click

from hummock.base.logs import DEFAULT_LEVEL, install_handler
from hummock.errors import InvalidOption

NAME = "log_level"


def with_log_level(command: click.Command) -> click.Command:
    """The command, with an option that installs the handler of the process before it runs."""
    if all(param.name != NAME for param in command.params):
        command.params.append(click.Option(
            ["--log-level"], envvar="HUMMOCK_LOG", default=DEFAULT_LEVEL, show_default=True, expose_value=False,
            callback=_install, help="Of records on the error stream: debug, info, warning, error, or logger=level with "
            "commas between. Also HUMMOCK_LOG."))
    return command


def _install(context: click.Context, option: click.Parameter, levels: str) -> None:
    try:
        install_handler(levels)
    except InvalidOption as error:
        raise click.BadParameter(f"{levels!r}: {error.allowed}", context, option) from None
