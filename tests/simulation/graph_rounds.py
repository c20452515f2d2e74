"""Random graphs of views over tables and sources in one process after the other: statements, creations, rescales,
drops, recoveries, jobs that fail and are resumed, sinks that hang, and deaths at numbered calls of the stores.

What must hold whenever a process looks, see `graph_checks`: each created job equals its query at the same epoch. The
tables hold what they held after some statement that is not older than the last acknowledged flush, without the rows
that have expired. What was acknowledged as created is there, what was dropped is not. A job is set aside only if it has
a reason of its own, or with one that it reads. Names, plans and state tables in the catalog belong together, and no
file is left over.
"""

from __future__ import annotations

import faulthandler
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from hummock.compactor import Compactor
from hummock.options import StorageOptions
from relational.catalog.job_failure import JobFailure
from relational.errors import NotFound
from stream.errors import (
    ActorFailed,
    ConnectorError,
    InvalidStatement,
    JobCreating,
    JobFailed,
    JobNotRunning,
)
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from stream.spark.spark_worker import SparkWorker
from tests.simulation import graph_expiry, graph_faults, graph_late
from tests.simulation.ddl_world import NEVER_MS, SHAPE, CrashingObjectStore, CrashPoint, How, World
from tests.simulation.graph_checks import SOON_SECONDS, Checker, Job, Logs
from tests.simulation.graph_engines import LocalTasks
from tests.simulation.graph_expiry import Birth, is_there
from tests.simulation.graph_sinks import Receiver
from tests.simulation.graph_source import Fault, Script, scripts
from tests.simulation.graph_steps import (
    CHANGING,
    EXPIRED_VIEWS,
    EXPIRING,
    FED,
    SCRIPTS,
    SOURCES,
    TABLES,
    TIMED,
    WRITTEN,
    Definition,
    Step,
    steps_of,
    watermark_of,
)


class FailureOfNoJob(Exception):
    """The cause of an injected recovery."""


OF_A_FAULT = (
    ActorFailed, ConnectorError, FailureOfNoJob, InvalidStatement, JobCreating, JobFailed, JobNotRunning, NotFound
)
"""What a statement may be answered while jobs fail, are created, or are gone, or if two recoveries undo it."""
COMPACTIONS = 4
HEALING_ROUNDS = 60
WRITTEN_AGAIN_POLLS = 1_000


@dataclass
class Graph:
    """The state of one simulation. `log` tells what was done, for the message of a failure."""

    seed: int
    rng: random.Random = field(init=False)
    world: World = field(init=False)
    scripts: dict[str, Script] = field(init=False)
    jobs: dict[str, Job] = field(default_factory=dict)
    states: list[list] = field(default_factory=lambda: [[{} for _ in WRITTEN]])  # of the tables, since the last flush
    log: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    written: Counter[tuple[str, int]] = field(default_factory=Counter)  # rows with a key of an expiring table
    logs: Logs = field(default_factory=Logs)
    crash: CrashPoint = field(default_factory=CrashPoint)
    session: Session | None = None
    threads: list[threading.Thread] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)  # scripts and jobs that have a reason to fail
    is_paused: bool = False
    tasks_share: float = 0.0
    """Of the processes whose actors are tasks of another engine."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.world = World(is_log=self.rng.random() < 0.25)
        self.scripts = scripts(self.seed, SCRIPTS, changing=CHANGING, timed=TIMED)
        tables = [Definition(name, f"SELECT * FROM {name}", (), self.scripts[name].columns) for name in FED]
        self.fed = {each.name: Job(each) for each in tables}

    # -- processes -------------------------------------------------------------------------------------

    def open(self, *, is_idle: bool = False) -> Session:
        """A new process on the stores; `is_idle`: it commits nothing by itself, and awaits splits without rows."""
        rng, self.crash = self.rng, CrashPoint()
        crash, self.is_paused = self.crash, False
        options = PlaygroundOptions(
            stream=StreamOptions(
                barrier_interval_ms=NEVER_MS if is_idle else rng.choice([1, 5, NEVER_MS]),
                checkpoint_frequency=rng.choice([1, 3]),
                recovery_attempts=4,
                recovery_backoff_ms=1,
                parallelism=rng.choice([1, 2, 3]),
                snapshot_slice_rows=rng.choice([1, 3, 20]),
                chunk_rows=rng.choice([2, 5, 4_096]),
                checkpoint_rows=rng.choice([0, 7]),
                split_discovery_ms=1,
                failed_job_history_ms=rng.choice([NEVER_MS, NEVER_MS, 0]),
                watermark_idle_ms=NEVER_MS if is_idle else rng.choice([NEVER_MS, NEVER_MS, 3]),
                detached_creation_bytes=rng.choice([0, 1 << 40]),
                state_cache_bytes=rng.choice([1, 1 << 12, 1 << 28]),
                **(_task_options(rng) if self.tasks_share else {}),
            ),
            storage=StorageOptions(watermark_interval_ms=0),
            compaction=SHAPE,
            is_maintained=False,
        )
        self._note_failures()
        for job in self.jobs.values():
            if job.receiver is not None:
                job.receiver.begin(lambda: crash.is_dead)
        objects = CrashingObjectStore(self.world.objects, crash)
        meta, clock = self.world.meta_of(objects, crash), lambda: self.world.now_ms
        tasks = self._tasks(objects) if self.tasks_share else None
        engine = None if tasks is None else partial(SparkWorker, tasks=tasks)
        self.session = Session(Playground(objects, meta, options, clock=clock, engine=engine))
        return self.session

    def _tasks(self, objects: CrashingObjectStore) -> LocalTasks | None:
        """Sometimes None: the actors run in the process itself."""
        is_tasks, slots = self.rng.random() < self.tasks_share, self.rng.choice([1, 2, 3])
        self.counts["processes with tasks" if is_tasks else "processes with actors"] += 1
        self.log.append(f"  engine: {f'tasks, {slots} slots' if is_tasks else 'process'}")
        if not is_tasks:
            return None
        threads, processes = self.rng.choice([1, 1, 2, 3]), self.rng.choice([1, 1, 2])
        return LocalTasks(objects, self.rng.randrange(1 << 30), slots, self.counts, threads, processes)

    def kill(self) -> None:
        """The process ends without a flush."""
        self.counts["deaths"] += 1
        self.crash.is_dead = True
        for job in self.jobs.values():
            if job.receiver is not None:
                job.receiver.end()
        self._note_ids()
        with suppress(Exception):
            self.live.abandon()
        self._join()
        self.session = None

    def run(self, steps: int) -> None:
        """`steps` random steps, then everything is healed, created, resumed and checked once more."""
        try:
            with (graph_faults.installed(), graph_late.installed(self.logs.readings),
                  graph_expiry.installed(self.logs.births)):
                self._run(steps_of(self.rng, steps))
        finally:
            graph_faults.heal()
            for job in self.jobs.values():
                if job.receiver is not None:
                    job.receiver.end()
            if self.session is not None:
                with suppress(Exception):
                    self.session.abandon()

    def _run(self, steps: list[Step]) -> None:
        self._create_inputs(self.open())
        for number, step in enumerate(steps):
            self.log.append(f"{number}: {step}")
            self.take(step)
        self.log.append("the end")
        if self.session is not None:
            self.kill()
        self.heal()

    def _create_inputs(self, session: Session) -> None:
        """The tables and sources that the graph is built on."""
        columns, key = "id BIGINT, a BIGINT, b BIGINT", ", PRIMARY KEY (id)"
        for name in WRITTEN:
            rule = f" APPEND ONLY ON CONFLICT IGNORE WITH ({_ttl_option(name)})" if name in EXPIRING else ""
            session.sql(f"CREATE TABLE {name} ({columns}{key}){rule}")
        for name in FED:
            options = ", ".join(filter(None, (f"connector = 'scripted', name = '{name}'", _ttl_option(name))))
            typed = ", ".join(f"{column} BIGINT" for column in self.scripts[name].columns)
            clauses = f"{'' if name == 'w1' else key}{watermark_of(name)}"       # w1 has no key
            rule = "" if name == CHANGING else " APPEND ONLY"
            session.sql(f"CREATE TABLE {name} ({typed}{clauses}){rule} WITH ({options})")
        for name, malformed in SOURCES.items():
            options = f"connector = 'scripted', name = '{name}', malformed = '{malformed}'"
            typed = ", ".join(f"{column} BIGINT" for column in self.scripts[name].columns)
            session.sql(f"CREATE SOURCE {name} ({typed}{watermark_of(name)}) WITH ({options})")
        for name, query in EXPIRED_VIEWS.items():
            session.sql(f"CREATE VIEW {name} AS {query}")

    def take(self, step: Step) -> None:
        """One step; the process may die in it."""
        if self.session is None:
            self.reopen()
        try:
            getattr(self, step.kind)(step)
        except AssertionError:
            raise
        except Exception as error:
            if self.crash.is_dead:
                self.log.append(f"  died: {type(error).__name__}")
                self.kill()
            elif isinstance(error, OF_A_FAULT):
                self._refused(step.kind, error)
            else:
                raise

    def reopen(self) -> None:
        self.log.append("  reopen")
        session = self.open()
        epoch, found = self.tables(session)
        state = next((each for each in reversed(self.states) if self._is_state(each, epoch, found)), None)
        assert state is not None, f"the tables hold the state after no statement since the last flush: {found}"
        self.states = [state]
        self.written = Counter({
            (name, key): self.logs.births.count(name, key, epoch)
            for name, rows in zip(WRITTEN, state, strict=True) if name in EXPIRING for key in rows
        })
        self._reconcile()
        self.check()

    def heal(self) -> None:
        """All causes of failures end; every job is created, resumed, has read its sources to their ends and is checked
        at last."""
        graph_faults.heal()
        for script in self.scripts.values():
            script.is_reachable = script.is_mended = True
        self.reopen()
        for _ in range(HEALING_ROUNDS):
            self._resume_all()
            self.flush(Step("flush"))
            if not self.checker.failures() and self._has_read_all():
                break
            time.sleep(0.01)
        else:
            raise AssertionError(f"not healed: {self.checker.failures()}, {self.live.jobs().to_pylist()}")
        self.live.wait_created()
        time.sleep(0.02)  # what delayed sinks collect is delivered after the next commit
        self.flush(Step("flush"))
        assert not self.checker.failures()
        version = self.live._playground.manager.version
        self.counts["tables that closed windows"] += sum(bool(rules.watermarks) for rules in version.tables.values())
        self.world.check_catalog_rows()
        self.live.close()
        self.world.vacuum()
        self.open(is_idle=True)
        self.compact(Step("compact"), 1_000)        # also the tasks of compactors that died
        self.live.close()
        self.world.vacuum()
        self.world.check_files(self.open(is_idle=True))
        self.check()

    # -- steps of tables and sources -------------------------------------------------------------------

    def statement(self, step: Step) -> None:
        """A random data change; a death in it leaves all or nothing of it."""
        if step.name in EXPIRING:
            self._insert(step)
            return
        rng, number = random.Random(step.number), TABLES.index(step.name)
        after = [dict(rows) for rows in self.states[-1]]
        rows = after[number]
        if step.how == "insert" or not rows:
            new = {key: (_value(rng), _value(rng)) for key in rng.sample(range(200), rng.choice([1, 5, 40]))}
            new = {key: row for key, row in new.items() if key not in rows}
            text = ", ".join(f"({key}, {_text(a)}, {_text(b)})" for key, (a, b) in new.items())
            text = f"INSERT INTO {step.name} VALUES {text}" if new else ""
            rows.update(new)
        elif step.how == "update":
            residue, more = rng.randrange(3), rng.randrange(1, 4)
            text = f"UPDATE {step.name} SET a = a + {more} WHERE id % 3 = {residue}"
            chosen = {key: row for key, row in rows.items() if key % 3 == residue}
            rows.update({key: (None if a is None else a + more, b) for key, (a, b) in chosen.items()})
        else:
            residue = rng.randrange(4)
            text = f"DELETE FROM {step.name} WHERE id % 4 = {residue}"
            after[number] = {key: row for key, row in rows.items() if key % 4 != residue}
        if text:
            self.states.append(after)
            self.live.sql(text)

    def _insert(self, step: Step) -> None:
        """Rows with new keys, or one with the key of a row that is ignored unless that row has expired."""
        rng, at = random.Random(step.number), WRITTEN.index(step.name)
        rows = self.states[-1][at]
        is_new = step.how == "insert" or not rows
        first = max(rows, default=0) + 1
        keys = range(first, first + rng.choice([1, 5, 40])) if is_new else [rng.choice(sorted(rows))]
        new = {key: (_value(rng), _value(rng)) for key in keys}
        self.states.append([*self.states[-1][:at], rows | new])
        committed = self.live.committed_epoch
        before = None if is_new else self._birth(step.name, keys[0])
        text = ", ".join(f"({key}, {_text(a)}, {_text(b)})" for key, (a, b) in new.items())
        count = self.live.sql(f"INSERT INTO {step.name} VALUES {text}")
        self.written.update({(step.name, key): 1 for key in new if count})
        if is_new:
            assert count == len(new), f"{count} of {len(new)} rows were inserted"
            return
        assert before is not None, f"the row {keys[0]} of {step.name} was acknowledged and is not written"
        ttl_ms = self.checker.ttl_ms(step.name)
        if count:
            birth = self._birth(step.name, keys[0])
            assert birth is not None and not is_there(before, birth.seen, ttl_ms), f"{before} was replaced by {birth}"
            self.counts["keys used again"] += 1
        else:
            assert is_there(before, committed, ttl_ms), f"{before} had expired at {committed}"
            self.counts["rows ignored"] += 1
            self.states.pop()

    def pass_time(self, step: Step) -> None:
        """The next epoch begins so many milliseconds later."""
        self.world.now_ms += step.number

    def shorten(self, step: Step) -> None:
        """Rows of a table expire earlier."""
        ttl_ms = max(self.checker.ttl_ms(step.name) - step.number, 100)
        self.live.sql(f"ALTER TABLE {step.name} SET (ttl = '{ttl_ms / 1_000} seconds')")
        assert self.checker.ttl_ms(step.name) == ttl_ms
        self.counts["shorter ttl"] += 1

    def end_split(self, step: Step) -> None:
        """A split of a timed stream has no records after those it has."""
        splits = self.scripts[step.name].splits
        with self.logs.readings.lock:
            splits[f"p{step.number % len(splits)}"].has_ended = True
        self.counts["splits ended"] += 1

    def produce(self, step: Step) -> None:
        splits = self.scripts[step.name].splits
        splits[f"p{int(step.how) % len(splits)}"].produce(step.number)

    def add_split(self, step: Step) -> None:
        self.scripts[step.name].add_split()

    def add_fault(self, step: Step) -> None:
        """The next record of a split is none: jobs that read it fail, unless they skip it."""
        script, fault = self.scripts[step.name], Fault(step.how)
        if fault is Fault.BROKEN:
            script.is_mended = False
        script.splits[f"p{step.number % len(script.splits)}"].add_fault(fault)
        self.counts[f"{fault} records"] += 1
        self.suspects.add(step.name)

    def lose(self, step: Step) -> None:
        """A connector cannot be opened any more, or can again; what reads it is set aside when it is opened next."""
        script = self.scripts[step.name]
        script.is_reachable = not script.is_reachable
        self.suspects.add(step.name)
        self.counts["connectors lost"] += not script.is_reachable
        if step.how == "reopen":
            self.kill()
        else:
            self.recover(step)

    def pause(self, step: Step) -> None:
        """Sources stop, or go on."""
        self.is_paused = not self.is_paused
        if self.is_paused:
            self.live.pause()
        else:
            self.live.resume()

    def _birth(self, name: str, key: int) -> Birth | None:
        """Of the last row with a key; a recovery that is under way writes it again, which an earlier row with that key
        does not tell."""
        for _ in range(WRITTEN_AGAIN_POLLS):
            if self.logs.births.count(name, key) >= self.written[name, key]:
                return self.logs.births.newest(name, key)
            time.sleep(0.01)
        return None

    # -- steps of jobs ---------------------------------------------------------------------------------

    def create(self, step: Step) -> None:
        """A job over tables, sources and created views."""
        assert step.job is not None
        if self._begin_job(step.job):
            self._unhold()
            self.live.sql(step.job.create)
            self.jobs[step.job.name].is_created = True

    def create_aside(self, step: Step) -> None:
        """A creation that goes on while later steps are taken."""
        assert step.job is not None
        if self._begin_job(step.job):
            graph_faults.hold_backfills()
            self._create_in_thread(step.job)

    def cancel(self, step: Step) -> None:
        """A creation that is cancelled by a DROP."""
        assert step.job is not None
        if not self._begin_job(step.job):
            return
        graph_faults.hold_backfills()
        thread = self._create_in_thread(step.job)
        while thread.is_alive() and not self._exists(step.job.name):
            time.sleep(0.0005)
        if self._exists(step.job.name):
            known = self.live._playground.catalog.snapshot
            self.counts["cancelled"] += step.job.name in {known.tables[job_id].name for job_id in known.creating}
            self.drop(Step("drop", step.job.name))
        thread.join(SOON_SECONDS)
        assert not thread.is_alive(), "a cancelled creation does not end"

    def rescale(self, step: Step) -> None:
        if self._exists(step.name):
            kind = self.jobs[step.name].definition.kind
            self.live.sql(f"ALTER {kind} {step.name} SET PARALLELISM = {step.number}")
            self.counts["rescales"] += 1

    def drop(self, step: Step) -> None:
        """A job with its readers: what a death leaves of it is read from the catalog."""
        if self._exists(step.name):
            for job in self._with_readers(step.name):
                job.is_created, job.is_dropped = False, True
            self.live.sql(f"DROP {self.jobs[step.name].definition.kind} {step.name} CASCADE")
            assert not self._exists(step.name)
            self._reconcile()

    def break_job(self, step: Step) -> None:
        """A job whose actors fail is set aside with its readers."""
        if not self._exists(step.name) or step.name in self.checker.failures():
            return
        self.suspects.add(step.name)
        graph_faults.break_job(step.name)
        deadline = time.monotonic() + SOON_SECONDS
        while step.name not in self.checker.failures():
            assert time.monotonic() < deadline, f"{step.name} fails and is not set aside"
            self.crash.check()
            self.live._playground.meta.request_barrier()
            time.sleep(0.001)
        self.counts["broken jobs"] += 1

    def resume(self, step: Step) -> None:
        """One of the jobs that were set aside for a reason of their own goes on."""
        failures = self.checker.failures()
        roots = self._roots(failures)
        if roots:
            name = roots[step.number % len(roots)]
            self._resume(name, failures, step.number if step.how == "skip" or failures[name].is_malformed else 0)

    # -- steps of sinks --------------------------------------------------------------------------------

    def hang(self, step: Step) -> None:
        """The target of a sink does not return: flushes go on."""
        receiver = self._receiver(step.name)
        if receiver is not None:
            receiver.hang()
            self.counts["hangs"] += 1

    def release(self, step: Step) -> None:
        receiver = self._receiver(step.name)
        if receiver is not None:
            receiver.release()

    def fail_delivery(self, step: Step) -> None:
        receiver = self._receiver(step.name)
        if receiver is not None:
            receiver.failures += 2
            self.counts["failed deliveries"] += 2

    # -- steps of the process --------------------------------------------------------------------------

    def flush(self, step: Step) -> None:
        self.live.flush()
        self.states = self.states[-1:]
        epoch, found = self.tables(self.live)
        assert self._is_state(self.states[0], epoch, found), f"{found} is not what was flushed: {self.states[0]}"
        self.check()

    def recover(self, step: Step) -> None:
        self.counts["recoveries"] += 1
        self.live._playground.meta.fail(FailureOfNoJob("injected"))

    def die_soon(self, step: Step) -> None:
        """The process dies at one of its next calls, in the middle of whatever it does then."""
        self.crash.at = self.crash.calls + step.number
        self.crash.how = How(step.how)
        self.crash.is_armed = True

    def vacuum(self, step: Step) -> None:
        """The process dies, and all of its garbage is removed before the next one begins."""
        self.kill()
        self.world.vacuum()

    def compact(self, step: Step, most: int = COMPACTIONS) -> None:
        playground = self.live._playground
        compactor = Compactor(playground.manager, playground.object_store, SHAPE)
        try:
            for _ in range(most):
                if not compactor.run_one():
                    break
                self.counts["compactions"] += 1
        finally:
            compactor.close()

    # -- checks ----------------------------------------------------------------------------------------

    @property
    def checker(self) -> Checker:
        return Checker(self.live, self.scripts, self.jobs, self.fed, self.logs, self.counts)

    def check(self) -> None:
        """The jobs equal their queries, and those that failed had a reason."""
        self.checker.check()
        for name, failure in self.checker.failures().items():
            if failure.follows is None:
                assert self._is_suspect(name), f"{name} failed without a reason: {failure.reason}"

    def tables(self, session: Session) -> tuple[int, list]:
        """An epoch, and {id: row} of each table at it."""
        with session.at() as snapshot:
            found = [snapshot.sql(f"SELECT * FROM {name}").to_arrow().to_pylist() for name in WRITTEN]
            return snapshot.epoch, [{row["id"]: (row["a"], row["b"]) for row in rows} for rows in found]

    def _is_state(self, state: list, epoch: int, found: list) -> bool:
        """Whether tables that hold `found` at an epoch are in a state, which has the expired rows too."""
        for name, rows, seen in zip(WRITTEN, state, found, strict=True):
            if name in EXPIRING:
                births = self.logs.births.rows(name, epoch)
                if {key: birth.row[1:] for key, birth in births.items()} != rows:
                    return False
                ttl_ms = self.checker.ttl_ms(name)
                rows = {key: row for key, row in rows.items() if is_there(births[key], epoch, ttl_ms)}
            if rows != seen:
                return False
        return True

    # -- internals -------------------------------------------------------------------------------------

    @property
    def live(self) -> Session:
        assert self.session is not None
        return self.session

    def _is_suspect(self, name: str) -> bool:
        if name in FED:
            return name in self.suspects
        definition = self.jobs[name].definition
        return definition.is_limited or not self.suspects.isdisjoint((name, *set(definition.inputs) - set(FED)))

    def _exists(self, name: str) -> bool:
        return name in self.jobs and name in self.live.names()

    def _receiver(self, name: str) -> Receiver | None:
        return self.jobs[name].receiver if name in self.jobs and self._exists(name) else None

    def _with_readers(self, name: str) -> list[Job]:
        found = {name: self.jobs[name]}
        for each, job in self.jobs.items():
            if found.keys() & set(job.definition.inputs):
                found[each] = job
        return list(found.values())

    def _begin_job(self, definition: Definition) -> bool:
        """Whether everything is there that a job reads; its target is then, too."""
        if not set(definition.inputs) <= set(self.live.names()) | SOURCES.keys():
            self.counts["without inputs"] += 1
            return False
        receiver = Receiver(definition.name) if definition.connector == "arrow" else None
        self.jobs[definition.name] = Job(definition, receiver)
        if receiver is not None:
            crash = self.crash
            receiver.begin(lambda: crash.is_dead)
        self.counts["sinks" if definition.connector else "views"] += 1
        return True

    def _create_in_thread(self, definition: Definition) -> threading.Thread:
        session, job, crash = self.live, self.jobs[definition.name], self.crash

        def create() -> None:
            try:
                session.sql(definition.create)
                job.is_created = not job.is_dropped
            except OF_A_FAULT as error:
                self.counts[f"create aside: {type(error).__name__}"] += 1
            except Exception as error:
                if not crash.is_dead:
                    self.log.append(f"  {definition.name} is not created: {error!r}")
                    self.counts["UNEXPECTED"] += 1

        thread = threading.Thread(target=create, name=f"create-{definition.name}", daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def _join(self) -> None:
        for thread in self.threads:
            thread.join(SOON_SECONDS)
            if thread.is_alive():
                faulthandler.dump_traceback()
            assert not thread.is_alive(), f"{thread.name} does not end with its process"
        assert not self.counts["UNEXPECTED"]
        self.threads.clear()

    def _unhold(self) -> None:
        graph_faults.release_backfills()
        self.live._playground.meta.request_barrier()

    def _refused(self, kind: str, error: Exception) -> None:
        self.log.append(f"  refused: {type(error).__name__}: {error}"[:300])
        self.counts[f"{kind}: {type(error).__name__}"] += 1
        self._reconcile()

    def _reconcile(self) -> None:
        """What exists is known; what was acknowledged exists. Jobs that were built anew begin anew."""
        present = set(self.live.names()) - {*WRITTEN, *SCRIPTS, *EXPIRED_VIEWS}
        assert present <= self.jobs.keys(), present - self.jobs.keys()
        acknowledged = {name for name, job in self.jobs.items() if job.is_created}
        assert acknowledged <= present, f"they are gone: {acknowledged - present}"
        beginning = {thread.name.removeprefix("create-") for thread in self.threads if thread.is_alive()}
        for name in self.jobs.keys() - present - beginning:
            receiver = self.jobs.pop(name).receiver
            if receiver is not None:
                receiver.end()
        ids = self._note_ids()
        for name, job in self.jobs.items():
            if name in ids and ids[name] != job.table_id:
                job.table_id, job.left_out, job.skipping = ids[name], [], None
                job.built_after, job.created_by = self.stopped_at.get(name, 0), 0
                self.counts["built anew"] += 1

    def _note_ids(self) -> dict[str, int]:
        """The ids of all jobs by name; remembers those that were not known yet."""
        ids = {table.name: table.id for table in self.live._playground.catalog.snapshot.jobs()}
        for name, job in self.jobs.items():
            job.table_id = job.table_id or ids.get(name, 0)
        return ids

    def _note_failures(self) -> None:
        """Remember at which epochs jobs stopped, before they may be resumed: what they did afterwards is void."""
        self.stopped_at: dict[str, int] = getattr(self, "stopped_at", {})
        tables = [json.loads(row) for _, row in self.world.meta.list("catalog/table/")]
        names = {table["id"]: table["name"] for table in tables}
        for _, row in self.world.meta.list("catalog/failed/"):
            failure = JobFailure.from_json(json.loads(row))
            if failure.job_id in names:
                name = names[failure.job_id]
                self.stopped_at[name] = failure.since
                states = [each["id"] for each in tables if failure.job_id in each["dependencies"]]
                self._forget_after(name, failure.since, states)

    def _forget_after(self, name: str, since: int, states: Iterable[int]) -> None:
        """What was recorded of a job with some state tables after the epoch at which it stopped is void."""
        for state in states:
            self.logs.readings.cut(state, since)
        if name in EXPIRING:
            self.logs.births.cut(name, since)

    def _resume(self, name: str, failures: dict[str, JobFailure], skip: int) -> None:
        failure, job = failures[name], self.fed[name] if name in FED else self.jobs[name]
        self._note_ids()
        graph_faults.mend_job(name)
        for script in self.scripts.values():
            script.is_mended = True
        self._unhold()
        self.stopped_at |= {each: found.since for each, found in failures.items()}
        with self.live.at() as snapshot:
            self.checker.settle(snapshot, name, job)
            skip = skip if failure.split is not None else 0
            if not failure.is_malformed and name == CHANGING:
                skip = 0        # a change that is left out would contradict later ones of its key
            if skip and failure.split is not None and not failure.is_malformed:
                source, split = failure.split.split("/") if "/" in failure.split else ("", failure.split)
                offsets = self.checker.offsets(snapshot, name)
                source = source or next(iter(offsets))
                begin = int(offsets[source].get(split, "0"))
                end = self.scripts[source].end_of_skip(split, begin, skip)
                job.skipping = (source, split, begin, end)
                self.log.append(f"  skips {job.skipping}")
        for each, found in failures.items():
            self._forget_after(each, found.since, self.checker.watermark_states(each))
        kind = "TABLE" if name in FED else job.definition.kind
        self.log.append(f"  resume {name} skip {skip}: {failure.reason}"[:200])
        try:
            self.live.sql(f"ALTER {kind} {name} RESUME" + (f" SKIP {skip} ROWS" if skip else ""))
            self.counts["resumed, skipping" if skip else "resumed"] += 1
        finally:
            if not self.crash.is_dead:
                self._reconcile()

    def _roots(self, failures: dict[str, JobFailure]) -> list[str]:
        """Those that read no other that is set aside."""
        ids = {failure.job_id for failure in failures.values()}
        return sorted(name for name, failure in failures.items() if failure.follows not in ids)

    def _resume_all(self) -> None:
        for name in self._roots(self.checker.failures()):
            try:
                failures = self.checker.failures()
                if name in failures:
                    self._resume(name, failures, 5 if failures[name].is_malformed else 0)
            except OF_A_FAULT as error:
                self._refused("healing", error)

    def _has_read_all(self) -> bool:
        """Whether every job has read its sources to their ends."""
        with self.live.at() as snapshot:
            return all(
                self.scripts[source].is_read(offsets)
                for name in (*FED, *self.jobs)
                for source, offsets in self.checker.offsets(snapshot, name).items()
            )


def _task_options(rng: random.Random) -> dict[str, int]:
    return {"driver_rows": rng.choice([0, 0, 20]), "epoch_rows": rng.choice([3, 1_000]),
            "task_rows": rng.choice([1, 1, 50_000])}


def _value(rng: random.Random) -> int | None:
    return None if rng.random() < 0.15 else rng.randrange(8)


def _ttl_option(name: str) -> str:
    return f"ttl = '{EXPIRING[name] / 1_000} seconds'" if name in EXPIRING else ""


def _text(value: int | None) -> str:
    return "NULL" if value is None else str(value)
