"""The commands over a store's files: `python -m hummock`.

    version, levels, stats, sst-dump, verify    look, and change nothing
    vacuum                                      removes files that nothing needs
    compact                                     merges files, as a process of its own

Each takes the URL of any store, `--meta` where its truth stands elsewhere, and `--json`. Exit status 0: all is
well; 1: damage was found, or the store cannot be read; 2: the command was misused. An error is one line.
"""

from __future__ import annotations

import click

from hummock.cli.compact import compact
from hummock.cli.dump import sst_dump
from hummock.cli.look import levels, stats, version
from hummock.cli.vacuum import vacuum
from hummock.cli.verify import verify

__all__ = ["main"]


@click.group()
def main() -> None:
    """Looks at, checks and tidies the files of a Hummock store.

    URL is file:///directory, s3://bucket/prefix or what else `hummock.open` takes.
    """


for command in (version, levels, stats, sst_dump, verify, vacuum, compact):
    main.add_command(command)
