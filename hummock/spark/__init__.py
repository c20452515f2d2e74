"""Work that outgrows one machine, on Spark: sessions, jobs of specs, the check of executors, the environment of a task.

Spark schedules, retries and counts tasks; rows do not pass through it unless a job requires it. pyspark is imported
when a session is requested: without it, and without Java, everything else works.
"""

from hummock.spark.executor_check import check_executors
from hummock.spark.jobs import run_job, run_specs, slots
from hummock.spark.session import check_session, spark_session, spark_settings

__all__ = ["check_executors", "check_session", "run_job", "run_specs", "slots", "spark_session", "spark_settings"]
