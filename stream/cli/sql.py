"""The commands `hummock sql` and `hummock playground`: their arguments. `stream.cli.shell` is what they run."""

from __future__ import annotations

from pathlib import Path

import click

from stream.cli.shell.options import FORMATS, Access

accept_rollback_option = click.option(
    "--accept-rollback", is_flag=True, help="Go on from an older copy of the store that was put back, for good."
)
allow_user_functions_option = click.option(
    "--allow-user-functions", is_flag=True, help="Run the Python functions that the store holds: only if you trust "
    "everybody who can write it."
)
metrics_port_option = click.option(
    "--metrics-port", type=click.IntRange(-1, 65_535), default=-1, help="Serve metrics to Prometheus on 127.0.0.1 at "
    "this port; 0: any free one."
)
EXAMPLES = """\b
Examples:
  hummock sql file:///data/shop                        a prompt; help lists its commands
  hummock sql file:///data/shop --create -f setup.sql  create a store, and what a file says
  hummock sql file:///data/shop -c 'SELECT * FROM v'   one query: a table, or CSV in a pipe
  echo 'SELECT 1' | hummock sql memory:// --format json
  hummock sql s3://bucket/shop -c '\\d' -c 'SELECT 1' --output rows.csv
"""


@click.command(epilog=EXAMPLES)
@click.argument("url")
@click.option("-c", "--command", "commands", multiple=True, help="Run this and end; may be repeated.")
@click.option("-f", "--file", "files", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Run a file and end; may be repeated.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of results; by default a table in a terminal, "
              "CSV elsewhere.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write results to a file.")
@click.option("--on-error", type=click.Choice(("stop", "continue")), default="stop", show_default=True,
              help="After a failed statement of a file, a pipe or -c. A prompt always continues.")
@click.option("--write", is_flag=True, help="Run the store's jobs, and take changes; by default it is read, beside the "
              "process that does.")
@click.option("--create", is_flag=True, help="Create the store if there is none, and write it.")
@click.option("--take-over", is_flag=True, help="Write the store though another process does, which ends.")
@click.option("--meta", help="Location of the store's metadata, if not at URL.")
@accept_rollback_option
@allow_user_functions_option
@metrics_port_option
def sql(
    url: str,
    commands: tuple[str, ...],
    files: tuple[Path, ...],
    format_: str | None,
    output: Path | None,
    on_error: str,
    write: bool,
    create: bool,
    take_over: bool,
    meta: str | None,
    accept_rollback: bool,
    allow_user_functions: bool,
    metrics_port: int,
) -> None:
    """Run SQL on the store at URL, or prompt for it."""
    from stream.cli.shell.run import Request, run

    access = Access(
        write or create or take_over, create, take_over, meta, accept_rollback, allow_user_functions, metrics_port
    )
    run(Request(url, access, commands, files, format_, output, goes_on=on_error == "continue"))


@click.command()
@click.argument("url", default="memory://")
@accept_rollback_option
@allow_user_functions_option
@metrics_port_option
def playground(url: str, accept_rollback: bool, allow_user_functions: bool, metrics_port: int) -> None:
    """All of Hummock in this process, to try it: a prompt on a store in memory, or on URL."""
    from stream.cli.shell.run import EXAMPLE, Request, run

    access = Access(True, True, accept_rollback=accept_rollback, allow_user_functions=allow_user_functions,
                    metrics_port=metrics_port)
    run(Request(url, access, welcome=EXAMPLE))
