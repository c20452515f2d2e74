"""What `import stream` brings along."""

import subprocess
import sys

NOT_BEFORE_IT_IS_USED = ("pandas", "pyspark", "boto3", "opendal", "psycopg", "duckdb", "polars",
                         "stream.examples.flights.connector")


def test_nothing_large_is_imported_before_it_is_used() -> None:
    code = f"import sys, stream; print([name for name in {NOT_BEFORE_IT_IS_USED} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
