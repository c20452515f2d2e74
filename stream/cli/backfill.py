"""The command `hummock backfill`: creates a materialized view whose history a Spark job computes."""

from __future__ import annotations

import time

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hummock.errors import HummockError
from hummock.spark.session import spark_session
from relational.display.text import counted_rows
from relational.errors import RelationalError
from relational.relation import Relation
from stream.cli.sql import metrics_port_option
from stream.cli.terminal import new_console, print_error
from stream.errors import StreamError
from stream.session.connect import connect
from stream.spark.driver import BulkBackfill
from stream.spark.job import SparkTasks


@click.command()
@click.argument("url")
@click.argument("view")
@click.argument("query")
@click.option("--spark", "master", required=True, help="Master of Spark: local[2], spark://host:7077, yarn, ...")
@click.option("--meta", help="Location of the store's metadata, if not at URL.")
@metrics_port_option
def backfill(url: str, view: str, query: str, master: str, meta: str | None, metrics_port: int) -> None:
    """Create materialized VIEW of QUERY, a SELECT, on the store at URL; its history is computed by Spark.

    It claims the writer role. The store's sources continue meanwhile; if the command ends early no view is left."""
    console, begun = new_console(), time.monotonic()
    columns = (TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with (connect(url, meta=meta, metrics_port=metrics_port) as session,
              Progress(*columns, console=console) as progress):
            if session.metrics_url is not None:
                console.print(f"metrics at {session.metrics_url}")
            selected = session.sql(query)
            if not isinstance(selected, Relation):
                raise click.UsageError("QUERY is a SELECT")
            spark = spark_session(master, name=f"hummock backfill {view}", carries_rows=False)
            try:
                bar = progress.add_task("", total=None)
                tasks = SparkTasks(spark, on_progress=lambda done, of: progress.update(bar, completed=done, total=of))
                made = session.create_materialized_view(view, selected, backfill=BulkBackfill(tasks))
                rows = made.to_arrow().num_rows
            finally:
                spark.stop()
    except (HummockError, RelationalError, StreamError, OSError) as error:
        print_error(console, error)
        raise SystemExit(1) from None
    console.print(f"{made.table.name}: {counted_rows(rows)}, in {time.monotonic() - begun:.1f} s")
