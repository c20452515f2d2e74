"""The store that a command works on: opened, or reported as missing, and closed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import click

from hummock.cli.output import Output
from hummock.errors import HummockError, MetaStoreCorrupt, MetaStoreRolledBack
from hummock.meta import is_log, open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.log_repair import carry_out_log_repair, plan_log_repair
from hummock.meta.store.base import MetaStore
from hummock.metrics import Metrics, serve_metrics
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from hummock.object_store.url import store_url
from hummock.opening import media_explained
from hummock.tools.repair import set_apart
from hummock.version import HummockVersion

FAILED = 1
accept_rollback_option = click.option(
    "--accept-rollback", is_flag=True, help="Go on from an older copy of the store that was put back, for good.")


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store opened by a command, without a role."""

    meta_store: MetaStore
    object_store: ObjectStore
    manager: HummockManager
    metrics: Metrics
    output: Output

    @property
    def version(self) -> HummockVersion:
        return self.manager.version


def store_command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds to a command the URL, as an argument or as --store, --meta, --accept-rollback and --json; the function gets
    an `OpenStore` instead.

    A `HummockError`, also one of opening, is printed and ends the process with status 1.
    """

    @click.argument("url", required=False)
    @click.option("--store", "named", metavar="URL", help="URL, by name.")
    @click.option("--meta", metavar="URL", help="Where the meta store is, if not where the store is.")
    @accept_rollback_option
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @wraps(function)
    def command(url: str | None, named: str | None, meta: str | None, accept_rollback: bool, as_json: bool,
                **options: Any) -> None:
        given = url or named
        if not given or (url and named):
            raise click.UsageError("one store is worked on: give its URL or path, or --store URL")
        output = Output(as_json)
        try:
            found = store_url(given)
            try:
                with opened(found, meta, output, accept_rollback=accept_rollback) as store:
                    function(store, **options)
            except MetaStoreCorrupt as error:
                if not options.get("repair") or isinstance(error, MetaStoreRolledBack):
                    raise
                repair_log(found, meta, output, error, yes=options["yes"])
                with opened(found, meta, output) as store:
                    function(store, **options)
        except HummockError as error:
            output.error(error)
            sys.exit(FAILED)

    return command


def repair_log(url: str, meta: str | None, output: Output, damage: MetaStoreCorrupt, *, yes: bool) -> None:
    """Quarantines the damaged end of a log in a bucket, if `yes`; otherwise raises `damage`."""
    if not is_log(url, meta):
        output.line("this meta store keeps no earlier records: put a copy back, and open it with --accept-rollback")
        raise damage
    objects = open_object_store(url)
    try:
        repair = plan_log_repair(objects)
        for reason in repair.damages.values():
            output.line(f"damaged {reason}", "red")
        output.line(f"{'goes' if yes else 'would go'} back from transaction {repair.last} to {repair.serial}, at "
                    f"committed epoch {repair.committed_epoch}; sets apart {', '.join(repair.paths)}", "yellow")
        if not yes:
            output.line("nothing was changed: --yes carries it out")
            raise damage
        carry_out_log_repair(repair, objects, lambda path: set_apart(objects, path))
    finally:
        objects.close()


@contextmanager
def opened(url: str, meta: str | None, output: Output, *, accept_rollback: bool = False) -> Iterator[OpenStore]:
    """The store at `url`, which must exist. Raises `HummockError`."""
    metrics = Metrics()
    with ExitStack() as resources:
        with media_explained(url):
            object_store = open_object_store(url, metrics=metrics, create=False)
            resources.callback(object_store.close)
            meta_store = open_meta_store(url, meta, object_store=object_store, create=False,
                                         accept_rollback=accept_rollback)
            resources.callback(meta_store.close)
        manager = HummockManager(meta_store, object_store, metrics=metrics)
        resources.callback(manager.close)
        yield OpenStore(meta_store, object_store, manager, metrics, output)


@contextmanager
def served(metrics: Metrics, output: Output, port: int | None) -> Iterator[None]:
    """Serves the process's metrics on 127.0.0.1 meanwhile, if a port is given; 0: any free one."""
    if port is None:
        yield
        return
    with serve_metrics(metrics, port) as url:
        output.line(f"metrics at {url}")
        yield


@contextmanager
def interrupted() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether SIGINT or SIGTERM arrived; the second one ends the process as usual."""
    came = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: object) -> None:
        came.set()
        for one, handler in before.items():
            signal.signal(one, handler)

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, note)
    try:
        yield came.is_set
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


port_option = click.option("--metrics-port", type=click.IntRange(0, 65535),
                           help="Serve metrics on 127.0.0.1 at this port; 0: any.")


class Duration(click.ParamType):
    """Milliseconds, from a number of seconds or a number with the unit ms, s, m, h or d."""

    name = "duration"
    units: ClassVar = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1_000}
    LIMIT_MS = 1 << 53

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        unit = next(unit for unit in self.units if value.endswith(unit))
        number = value.removesuffix(unit)
        if not number.isascii() or not number.replace(".", "", 1).isdigit():
            self.fail(f"{value!r} is no time such as 90, 1.5h or 300ms", parameter, context)
        converted = float(number) * self.units[unit]
        if converted > self.LIMIT_MS:
            self.fail(f"{value!r} is too long", parameter, context)
        return int(converted)
