"""Where the tasks of a job run: in which Python workers, and near which executors. Of the classic API alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

POOL = "HUMMOCK_WORKER_POOL"    # in the environment of a worker; Spark keeps workers by their environments
EXECUTOR = "executor_"          # before a host and an executor's id, in Spark's notation of a preferred location


class _Context:
    """A SparkContext, with another environment for Python workers."""

    def __init__(self, context: SparkContext, environment: dict[str, str]) -> None:
        self._context = context
        self.environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def with_pool(context: SparkContext, pool: str) -> Any:
    """The context of an RDD whose tasks run in the Python workers of `pool`, which no other tasks use."""
    return _Context(context, {**context.environment, POOL: pool})


def rdd_near(context: SparkContext, pairs: Sequence[tuple[int, bytes]], near: Sequence[str]) -> RDD[Any]:
    """An RDD with a partition for each pair, which Spark runs in the executor that `near` names ("host_id") if that is
    free within `spark.locality.wait`; empty: anywhere."""
    from pyspark import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    serializer = BatchedSerializer(CPickleSerializer(), 1)
    jvm: Any = context._jvm
    rows = jvm.java.util.ArrayList()
    for pair, executor in zip(pairs, near, strict=True):
        locations = jvm.java.util.ArrayList()
        if executor:
            locations.add(EXECUTOR + executor)
        rows.add(jvm.scala.Tuple2(bytearray(serializer.serializer.dumps([pair])), jvm.PythonUtils.toSeq(locations)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)
    return RDD(made.toJavaRDD(), context, serializer)
