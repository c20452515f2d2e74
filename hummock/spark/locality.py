"""Where the tasks of a job run: in which Python workers, and near which executors. Of the classic API alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

POOL = "HUMMOCK_WORKER_POOL"    # in the environment of a worker; Spark keeps workers by their environments
EXECUTOR = "executor_"          # before a host and an executor's id, in Spark's notation of a preferred location
_NAMES: WeakKeyDictionary[SparkContext, tuple[Any, Any, Any, Any]] = WeakKeyDictionary()
"""Of the JVM of a context; each part of a name is a request when it is looked up."""


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


def _jvm_names(context: SparkContext) -> tuple[Any, Any, Any, Any]:
    """Constructors of a list and of a pair, the function that makes a sequence of a list, and the tag of bytes."""
    found = _NAMES.get(context)
    if found is None:
        jvm: Any = context._jvm
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        found = _NAMES[context] = jvm.java.util.ArrayList, jvm.scala.Tuple2, jvm.PythonUtils.toSeq, tag
    return found


def rdd_near(context: SparkContext, pairs: Sequence[tuple[int, bytes]], near: Sequence[str]) -> RDD[Any]:
    """An RDD with a partition for each pair, which Spark runs in the executor that `near` names ("host_id") if that is
    free within `spark.locality.wait`; empty: anywhere."""
    from pyspark import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    serializer = BatchedSerializer(CPickleSerializer(), 1)
    new_list, new_pair, sequence, tag = _jvm_names(context)
    locations, rows = {}, new_list()
    for executor in set(near):
        one = new_list()
        if executor:
            one.add(EXECUTOR + executor)
        locations[executor] = sequence(one)
    for pair, executor in zip(pairs, near, strict=True):
        rows.add(new_pair(bytearray(serializer.serializer.dumps([pair])), locations[executor]))
    made = context._jsc.sc().makeRDD(sequence(rows), tag)
    return RDD(made.toJavaRDD(), context, serializer)
