"""QueryActivity: the queries and jobs of a Spark application, polled from the status store of its driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hummock.epoch import wall_clock_ms
from relational.spark.held_reads import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = 64
QUERY_TAG = "-execution-root-id-"       # a job with a tag that contains it is a part of a query
SCAN = r"BatchScan {0}\b[^\n]*?\n?(?:Output \[\d+\]: )?\[.*?#(\d+)"


def scans_in(plan: str, source: str) -> frozenset[int]:
    """The attribute ids by which the scans of `source` in the text of a plan differ: the first of each scan."""
    return frozenset(map(int, re.findall(SCAN.format(re.escape(source)), plan)))


class QueryActivity:
    """Polls what runs. Not thread safe. `poll` raises the errors of py4j."""

    def __init__(self, spark: SparkSession, source: str):
        self._session, self._context, self._source = spark._jsparkSession, spark.sparkContext, source
        self._running: dict[str, Query] = {}
        self._jobs: dict[int, Query | None] = {}     # None: of a query
        self._seen_query = -1
        with suppress(Exception):       # of py4j, where this Spark has no such store: then each poll raises it
            self._seen_query = next((each.executionId() for each in self._newest_first()), -1)

    @property
    def has_ended(self) -> bool:
        """Whether the application has been stopped."""
        return self._context._jsc is None

    def poll(self) -> list[Query]:
        """All that run, and those that ended since the last poll."""
        queries = [*self._new_queries()]
        queries += [self._later(query) for query in self._running.values()]
        self._running = {query.name: query for query in queries if query.ended_ms is None}
        return queries + self._active_jobs()

    def _new_queries(self) -> Iterator[Query]:
        seen = self._seen_query
        for each in self._newest_first():
            number = each.executionId()
            if number <= seen:
                return
            self._seen_query = max(self._seen_query, number)
            scans = scans_in(each.physicalPlanDescription(), self._source)
            yield Query(f"query {number}", each.submissionTime(), _ended_ms(each), scans)

    def _newest_first(self) -> Iterator[Any]:
        store = self._session.sharedState().statusStore()
        end = store.executionsCount()
        while end > 0:
            first = max(0, end - PAGE)
            page = store.executionsList(first, end - first)
            for index in range(page.size() - 1, -1, -1):
                yield page.apply(index)
            end = first

    def _later(self, query: Query) -> Query:
        """`query` as it is now; one that the store has forgotten has ended."""
        found = self._session.sharedState().statusStore().execution(int(query.name.split()[1]))
        ended_ms = _ended_ms(found.get()) if found.isDefined() else wall_clock_ms()
        return Query(query.name, query.began_ms, ended_ms, query.scans)

    def _active_jobs(self) -> list[Query]:
        """The jobs that no query began, but an action on an RDD."""
        active = [*self._context.statusTracker().getActiveJobsIds()]
        self._jobs = {job: self._jobs[job] if job in self._jobs else self._job(job) for job in active}
        return [query for query in self._jobs.values() if query is not None]

    def _job(self, job: int) -> Query | None:
        found = self._context._jsc.sc().statusStore().job(job)
        if QUERY_TAG in found.jobTags().mkString(" "):
            return None
        began = found.submissionTime()
        return Query(f"job {job}", began.get().getTime() if began.isDefined() else wall_clock_ms(), None, None)


def _ended_ms(execution: Any) -> int | None:
    ended = execution.completionTime()
    return ended.get().getTime() if ended.isDefined() else None
