"""The commands on a store's files: `python -m hummock`.

    version, levels, stats, sst-dump, verify    read only
    vacuum                                      removes files that nothing needs
    compact                                     runs compaction tasks, as a process of its own

Each takes the URL of any store, as an argument or as `--store URL`, `--meta` for a meta store elsewhere, and `--json`.
Exit status 0: success; 1: damage was found, or the store cannot be read; 2: the command was misused. An error is one
line.
"""

from __future__ import annotations

import click

from hummock.base.logs import DEFAULT_LEVEL, install_handler
from hummock.cli.compact import compact
from hummock.cli.dump import sst_dump
from hummock.cli.look import levels, stats, version
from hummock.cli.vacuum import vacuum
from hummock.cli.verify import verify
from hummock.errors import InvalidOption

__all__ = ["main"]


class _InOrder(click.Group):
    """Lists commands in the order of use: reading ones first."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, options_metavar="", subcommand_metavar="COMMAND URL [OPTIONS]")
@click.option("--log-level", envvar="HUMMOCK_LOG", default=DEFAULT_LEVEL, show_default=True,
              help="Of records on the error stream; also HUMMOCK_LOG.")
def main(log_level: str) -> None:
    """Look at, check and tidy the files of a Hummock store, also while others use it. For sql and the other commands of
    sessions see hummock --help.

    URL is file:///directory, s3://bucket/prefix or what else `hummock.open` takes. COMMAND --help describes one.

    Exit status 0: all is well; 1: damage was found, or the store cannot be read; 2: the command was misused.
    """
    try:
        install_handler(log_level)
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None


for command in (version, levels, stats, sst_dump, verify, vacuum, compact):
    main.add_command(command)
