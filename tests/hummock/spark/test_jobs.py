"""Spark jobs: results in order, errors, retries, cancellation and names; and the executor check."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from hummock.errors import ExecutorUnfit, InvalidOption, ObjectNotFound, SparkJobCancelled, SparkJobFailed
from hummock.object_store import open_object_store
from hummock.spark import check_executors, jobs, run_job, run_specs, slots
from hummock.spark import executor_check as probe
from hummock.spark.locality import rdd_near
from hummock.spark.worker import (
    deadline,
    do_spec,
    local_directory,
    lower_priority,
    shared_url,
    task_memory,
    task_store,
)
from tests.support.drivers import spark_work
from tests.support.servers.file_calls import between

pytestmark = pytest.mark.spark
VERSION = jobs.installed_version()


def work(name: str) -> str:
    """The import path of a test function, for executors as for this process."""
    return f"{spark_work.__name__}:{name}"


def test_answers_are_in_the_order_of_their_specs(spark):
    specs = [b"%d" % number * number for number in range(9)]
    assert run_specs(spark, specs, work("backwards"), name="backwards") == [spec[::-1] for spec in specs]
    assert run_specs(spark, [], work("backwards"), name="nothing") == []


def test_each_spec_travels_to_a_task_of_its_own(spark, monkeypatch):
    sent, real = [], jobs.partial
    monkeypatch.setattr(jobs, "partial", lambda *args: (sent.append(pickle.dumps(args)), real(*args))[1])
    answers = run_specs(spark, [bytes([number]) * 100_000 for number in range(7)], work("partition"), name="apart")
    assert sorted(answers) == [b"%d" % number for number in range(7)]
    assert sum(map(len, sent)) < 1_000, "what all tasks receive holds no spec"


def test_a_session_with_large_types_gets_the_same_answers(spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert run_specs(spark, [b"ab"], work("backwards"), name="large") == [b"ba"]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_what_may_pass_is_tried_again_by_spark(spark, tmp_path):
    specs = [json.dumps({"counter": str(tmp_path / f"{number}"), "fails": number}).encode() for number in range(3)]
    assert run_specs(spark, specs, work("fail_at_first"), name="retries") == [b"1", b"2", b"3"]


def test_what_never_passes_is_not_tried_again_and_its_reason_is_reported(spark, tmp_path):
    spec = json.dumps({"counter": str(tmp_path / "0"), "fails": 9, "kind": "Corruption"}).encode()
    with pytest.raises(SparkJobFailed, match=r"task 0: Corruption: .*injected"):
        run_specs(spark, [spec], work("fail_at_first"), name="damage")
    assert (tmp_path / "0").read_bytes() == b"x"


def test_what_does_not_pass_in_time_fails_the_job(spark, tmp_path):
    spec = json.dumps({"counter": str(tmp_path / "0"), "fails": 9}).encode()
    with pytest.raises(SparkJobFailed, match=r"ObjectStoreError: .*injected"):
        run_specs(spark, [spec], work("fail_at_first"), name="no luck")
    assert (tmp_path / "0").read_bytes() == b"x" * 4


def test_a_job_can_be_cancelled_in_its_middle_and_the_next_one_runs(spark, tmp_path):
    specs = [str(tmp_path / f"{number}").encode() for number in range(2)]
    with pytest.raises(SparkJobCancelled, match="endless"):
        run_specs(spark, specs, work("wait_for_ever"), name="endless",
                  is_cancelled=lambda: all(Path(spec.decode()).exists() for spec in specs))
    assert run_specs(spark, [b"ab"], work("backwards"), name="next") == [b"ba"]


def test_a_job_whose_caller_ends_is_cancelled(spark, tmp_path):
    class Ended(Exception):
        pass

    def end(done, tasks):
        if (tmp_path / "0").exists():
            raise Ended

    with pytest.raises(Ended):
        run_specs(spark, [str(tmp_path / "0").encode()], work("wait_for_ever"), name="endless", on_progress=end)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_progress_is_reported_while_a_job_runs(spark, tmp_path):
    specs, seen = [str(tmp_path / f"{number}").encode() for number in range(3)], []

    def look(done, tasks):
        seen.append((done, tasks))
        for spec in specs:
            Path(spec.decode() + ".go").touch()

    assert run_specs(spark, specs, work("wait_for_go"), name="watched", on_progress=look) == [b"gone"] * 3
    assert seen and all(0 <= done <= tasks <= 3 for done, tasks in seen)


def test_a_job_is_described_by_its_name_and_the_callers_thread_is_left_alone(spark):
    context = spark.sparkContext

    def act():
        spark.range(0, 1, 1, 1).collect()
        jobs_of_group = context.statusTracker().getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
        return context.getLocalProperty("spark.job.description"), len(jobs_of_group)

    assert run_job(spark, act, name="hummock: a job") == ("hummock: a job", 1)
    assert context.getLocalProperty("spark.job.description") is None


def test_slots_are_what_the_master_has(spark):
    assert slots(spark) == 2


def test_jobs_of_a_pool_share_a_worker_that_runs_nothing_else(spark):
    for _ in range(2):
        run_specs(spark, [b""] * 2, work("process"), name="others")
    own = {run_specs(spark, [b""], work("process"), name="own", pool="own")[0] for _ in range(4)}
    assert len(own) == 1
    others = {pid for _ in range(4) for pid in run_specs(spark, [b""] * 2, work("process"), name="others")}
    assert not own & others
    assert "HUMMOCK_WORKER_POOL" not in spark.sparkContext.environment


def test_a_spec_prefers_its_executor_and_runs_elsewhere_if_that_is_gone(spark):
    near = ["host.example_7", ""]
    rdd = rdd_near(spark.sparkContext, [(0, b"ab"), (1, b"cd")], near)
    java = rdd._jrdd.rdd()
    locations = [java.preferredLocations(partition).mkString(",") for partition in java.partitions()]
    assert locations == ["executor_host.example_7", ""]
    assert rdd.collect() == [(0, b"ab"), (1, b"cd")]
    assert run_specs(spark, [b"ab", b"cd"], work("backwards"), name="near", near=near, pool="own") == [b"ba", b"dc"]


def test_a_worker_knows_its_executor_where_that_has_a_name(spark):
    assert run_specs(spark, [b""], work("executor"), name="executor") == [b""], "threads of a driver have none"


def test_another_version_in_a_task_is_refused_there(spark):
    answer, error = do_spec("0.0.1", "builtins:len", b"")
    assert answer is None and error.startswith("ExecutorUnfit") and "0.0.1" in error


def test_a_missing_package_is_reported_with_its_remedy(spark):
    def broken(batches):
        import hummock_that_is_not_there  # noqa: F401
        yield from batches

    with pytest.raises(ExecutorUnfit, match="venv-pack"):
        run_job(spark, spark.range(0, 1, 1, 1).mapInArrow(broken, "id long").collect, name="missing")


def test_the_cause_is_found_in_what_spark_says(spark):
    def broken(batches):
        raise KeyError("the cause")
        yield

    with pytest.raises(SparkJobFailed, match="KeyError: 'the cause'") as caught:
        run_job(spark, spark.range(0, 1, 1, 1).mapInArrow(broken, "id long").collect, name="broken")
    assert caught.value.name == "broken"


# -- executors ------------------------------------------------------------------------------------------------


def test_executors_that_reach_the_store_are_counted_and_leave_nothing_there(spark, tmp_path):
    assert check_executors(spark, f"file://{tmp_path}") == 1
    assert not [found.path for found in open_object_store(f"file://{tmp_path}").list()]


def test_a_store_in_memory_is_refused_by_name(spark):
    with pytest.raises(InvalidOption, match="memory://"):
        check_executors(spark, "memory://")
    with pytest.raises(InvalidOption, match="memory://"):
        task_store("memory://")
    assert shared_url("s3://bucket/prefix") == "s3://bucket/prefix"


def test_an_executor_that_sees_another_directory_says_so(spark, tmp_path):
    found = probe.probe(f"file://{tmp_path}", "spark/probe-of-a-driver-elsewhere")
    assert "ObjectNotFound" in found["store"] and "elsewhere" in found["store"]
    with pytest.raises(ExecutorUnfit, match=r"worker-3 cannot .*elsewhere.*directory that all machines mount"):
        probe._judge({"host": "worker-3", "error": "", **found})


def test_what_a_check_puts_is_never_synced(tmp_path):
    url, calls = f"file://{tmp_path}", set()
    task_store(url).put("spark/probe-of-a-driver", b"driver")
    with between(lambda name, real, *arguments: (calls.add(name), real(*arguments))[1]):
        assert probe.probe(url, "spark/probe-of-a-driver")["store"] == ""
    assert "pwrite" in calls and "fsync" not in calls


def test_an_executor_whose_tasks_get_no_valid_niceness_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMOCK_TASK_NICENESS", "ten")
    found = probe.probe(f"file://{tmp_path}", "spark/probe-of-a-driver-elsewhere")
    with pytest.raises(ExecutorUnfit, match=r"worker-3 .*TASK_NICENESS is 'ten'.*set spark\.executorEnv"):
        probe._judge({"host": "worker-3", "error": "", **found})
    assert do_spec(VERSION, work("backwards"), b"")[1].startswith("InvalidOption: option HUMMOCK_TASK_NICENESS")


@pytest.mark.parametrize(("answer", "said"), [
    ({"error": "ModuleNotFoundError: No module named 'hummock'"}, "worker-3 .*No module named 'hummock'.*venv-pack"),
    ({"error": "", "version": "0.0.1", "setting": "", "store": ""}, "worker-3 .*0.0.1.*venv-pack")])
def test_an_executor_without_this_package_is_reported_with_its_remedy(answer, said):
    with pytest.raises(ExecutorUnfit, match=said):
        probe._judge({"host": "worker-3", **answer})


# -- in a task ------------------------------------------------------------------------------------------------


def test_a_store_is_opened_once_for_a_worker(tmp_path):
    assert task_store(f"file://{tmp_path}") is task_store(f"file://{tmp_path}")


def test_a_worker_collects_what_its_tasks_leave_and_not_what_it_imported(spark):
    counted = {}
    for _ in range(4):
        for answer in run_specs(spark, [b""] * 4, work("count_frozen"), name="frozen"):
            worker, *counts = json.loads(answer)
            counted.setdefault(worker, []).append(counts)
    for counts in counted.values():
        assert all(frozen > 0 for _, frozen in counts)
        for (modules, _), (same, frozen), (last, frozen_last) in zip(counts, counts[1:], counts[2:], strict=False):
            assert frozen_last <= frozen or not modules == same == last


def test_errors_are_answers_where_no_retry_helps():
    assert do_spec(VERSION, "builtins:bytes", b"12") == (b"12", None)
    answer, error = do_spec(VERSION, "json:loads", b"{")
    assert answer is None and error.startswith("JSONDecodeError: ")
    with pytest.raises(ObjectNotFound):
        do_spec(VERSION, f"{spark_work.__name__}:not_found", b"")


def test_a_deadline_is_counted_from_its_making(monkeypatch):
    now = iter([5.0, 5.0, 6.999, 7.0, 8.0])
    monkeypatch.setattr("hummock.spark.worker.monotonic_seconds", lambda: next(now))
    is_over = deadline(2_000)
    assert [is_over() for _ in range(4)] == [False, False, True, True]


def test_memory_is_what_the_workers_limit_leaves(monkeypatch):
    import resource
    assert task_memory(1 << 30) == 1 << 30 or resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    monkeypatch.setattr("hummock.spark.worker.resource.getrlimit", lambda which: (100 << 20, 100 << 20))
    assert task_memory(1 << 30) == 50 << 20
    assert task_memory(1 << 20) == 1 << 20


def test_files_of_a_task_are_in_a_directory_that_spark_names_if_it_exists(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert local_directory() is None
    for named, expected in (("", None), (f"{tmp_path}/none,", None), (f"{tmp_path}/none,{tmp_path}", str(tmp_path))):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", named)
        assert local_directory() == expected


def test_a_task_gives_way_and_never_takes_back(monkeypatch):
    calls = []
    monkeypatch.setattr("hummock.spark.worker.os.getpriority", lambda which, who: 3)
    monkeypatch.setattr("hummock.spark.worker.os.setpriority", lambda *asked: calls.append(asked))
    for niceness in (0, 3, 10):
        lower_priority(niceness)
    assert calls == [(os.PRIO_PROCESS, 0, 10)]
