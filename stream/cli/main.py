"""The command `hummock`: a prompt for SQL, a playground, and the commands that inspect a store's files.

A command is imported when it is called, so that `hummock --help` is fast and a command whose extra is not installed
does not affect the others. COMMANDS has what the list of commands shows."""

from __future__ import annotations

import importlib

import click

from hummock.base.process import installed_version, prepare_process

KEPT_FREED_BYTES = 128 << 20
"""Freed memory that a process of ours keeps: chunks come and go, and pages that are new to it cost CPU time."""
COMMANDS = {
    "sql": (
        "stream.cli.sql:sql",
        "Run SQL on the store at URL, or prompt for it.",
    ),
    "playground": (
        "stream.cli.sql:playground",
        "All of Hummock in this process, to try it: a prompt on a store in memory, or on URL.",
    ),
    "flights": (
        "stream.examples.flights.command:flights",
        "Keep five views over a year of flights, from about a million changes.",
    ),
    "demo": (
        "stream.examples.flights.demo:demo",
        "Watch five views change while flights depart and land, on a store in memory.",
    ),
    "stream": (
        "stream.cli.stream:stream",
        "Keep the tables, views and sinks of a store running.",
    ),
    "backfill": (
        "stream.cli.backfill:backfill",
        "Create materialized VIEW of QUERY, a SELECT, on the store at URL; its history is computed by Spark.",
    ),
    "version": ("hummock.cli:version", "Show the newest version, file by file."),
    "levels": ("hummock.cli:levels", "Show the tree's runs and the compact tasks under way."),
    "stats": ("hummock.cli:stats", "Show sizes by level, table and need, and who reads and writes."),
    "sst-dump": ("hummock.cli:sst_dump", "List the files, or show one block by block."),
    "verify": ("hummock.cli:verify", "Read everything and report each damage."),
    "doctor": ("stream.cli.doctor:doctor", "Say what is wrong with the store at URL, or will be, and what helps."),
    "backup": ("stream.cli.backup:backup", "Copy the newest committed epoch of STORE to TARGET, beside its writer."),
    "restore": ("stream.cli.backup:restore", "Make a new STORE from a backup in SOURCE."),
    "vacuum": ("hummock.cli:vacuum", "Remove files that no version, reader or upload needs."),
    "compact": ("hummock.cli:compact", "Merge files: all that is due, or named tables and ranges."),
}
"""Name -> (module:object, first sentence of its help)."""


class LazyCommand(click.Command):
    """A command that is imported when it is called, or its own help is asked for."""

    def __init__(self, name: str, target: str, help: str) -> None:
        super().__init__(name, help=help)
        self._target = target

    def load(self) -> click.Command:
        """The command itself, with the option that all have."""
        from stream.cli.log_level import with_log_level  # the list of commands does without

        module, attribute = self._target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return with_log_level(command)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent, **extra)


EXAMPLES = """\b
Examples:
  hummock playground                      try SQL on a store in memory
  hummock sql file:///data/shop           a prompt on a store
  hummock stream --store file:///data/shop
  hummock COMMAND --help
"""


@click.group(commands=[LazyCommand(name, *described) for name, described in COMMANDS.items()], epilog=EXAMPLES)
@click.version_option(version=installed_version(), prog_name="hummock")
def main() -> None:
    """Materialized views that stay fresh, on a store that survives any crash."""
    prepare_process(KEPT_FREED_BYTES)
