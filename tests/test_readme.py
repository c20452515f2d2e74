"""The Python examples of the readmes run twice as they are written, and what their comments state is so.

A block that does not begin with an import continues where the previous one ended.
"""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stream.connector import arrow_sink, arrow_streams
from tests.support.stated_values import Stating, check

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STORES = "file:///tmp/"
SPARK = 'spark_session("local[2]")'
BUCKET = "s3://bucket/prefix?endpoint=http://127.0.0.1:9000&path_style=true"


def blocks(readme: str) -> list[str]:
    """The examples, each with the blocks that continue it."""
    examples: list[str] = []
    for block in BLOCK.findall((ROOT / readme).read_text()):
        if block.startswith(("import ", "from ")) or not examples:
            examples.append(block)
        else:
            examples[-1] += block
    return examples


@pytest.fixture
def bucket_url(s3_url: str) -> str:
    """A new bucket on a real S3 server, in the words of the readme."""
    return f"{s3_url}&path_style=true"


EXAMPLES = [
    *(pytest.param(block, 1 if SPARK in block else 2, id=f"readme-{number}",
                   marks=[pytest.mark.spark] * (SPARK in block))
      for number, block in enumerate(blocks("README.md"))),
    *(pytest.param(block, 2, id=f"spark-{number}", marks=[pytest.mark.spark, pytest.mark.slow])
      for number, block in enumerate(each for each in blocks("README.md") if SPARK in each)),
    pytest.param(blocks("hummock/README.md")[0], 2, id="hummock-0"),
]


@pytest.mark.parametrize(("source", "runs"), EXAMPLES)
def test_example_runs_twice_and_gives_what_its_comments_state(
    source: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    source = source.replace(STORES, f"{tmp_path.as_uri()}/").replace("mkdtemp()", f"mkdtemp(dir={str(tmp_path)!r})")
    if BUCKET in source:
        source = source.replace(BUCKET, request.getfixturevalue("bucket_url"))
    if SPARK in source:
        source = source.replace(SPARK, "spark_session_of_the_tests")
    stating = Stating(source)
    tree = stating.visit(ast.parse(source))
    assert stating.stated, "no comment states a value"
    names: dict[str, Any] = {"check": check, "Decimal": Decimal}
    if "spark_session_of_the_tests" in source:
        names["spark_session_of_the_tests"] = request.getfixturevalue("spark")
    for _ in range(runs):
        monkeypatch.setattr(arrow_streams, "_STREAMS", {})          # as in a new process
        monkeypatch.setattr(arrow_sink, "_FUNCTIONS", {})
        used = dict(names)
        try:
            exec(compile(tree, "example", "exec"), used)
        finally:
            for name in {"db", "store"} & used.keys():
                used[name].close()


def test_comment_that_is_not_so_is_found() -> None:
    tree = Stating("1 + 1    # 3").visit(ast.parse("1 + 1    # 3"))
    with pytest.raises(AssertionError, match=r"1 \+ 1  # 3"):
        exec(compile(tree, "example", "exec"), {"check": check})
