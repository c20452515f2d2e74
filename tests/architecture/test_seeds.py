"""Every random number of a test can be reproduced by a later run."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.architecture.layers import ROOT
from tests.support.drivers.seeds import SEED, VARY, VariedRandom, run_seed, varied_rng

SEEDS = ROOT / "tests/support/drivers/seeds.py"      # draws the seed of a run
SOURCES = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != SEEDS)
SEEDED = {"random.Random", "Random", "np.random.default_rng", "numpy.random.default_rng", "default_rng"}
DRAWS = ("random.", "np.random.", "numpy.random.", "secrets.", "os.urandom")


def unrepeatable(text: str) -> Iterator[str]:
    """Yields `line: call` for each draw from an unseeded generator."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in SEEDED:
            if not (node.args or node.keywords):
                yield f"{node.lineno}: {called}() has no seed"
        elif called.startswith(DRAWS) and not called.startswith(tuple(f"{each}(" for each in SEEDED)):
            yield f"{node.lineno}: {called} draws from an unseeded generator"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_that_is_random_has_a_seed(path: Path) -> None:
    assert not list(unrepeatable(path.read_text()))


@pytest.mark.parametrize("text", ["random.random()", "random.Random()", "np.random.default_rng()", "os.urandom(3)",
                                  "random.SystemRandom().random()", "np.random.rand(3)", "secrets.token_hex(3)"])
def test_what_has_no_seed_is_found(text: str) -> None:
    assert list(unrepeatable(f"import random\n{text}"))


@pytest.mark.parametrize("text", ["random.Random(5).random()", "np.random.default_rng(seed)", "rng.random()"])
def test_what_has_a_seed_is_let_be(text: str) -> None:
    assert not list(unrepeatable(text))


def test_a_seed_is_taken_back_from_the_environment() -> None:
    drawn = "import random; from tests.support.drivers import seeds; seeds.vary(); " \
        "print(seeds.run_seed(), random.Random(seeds.run_seed()).random(), random.Random(5).random())"

    def run(**environment: str) -> list[str]:
        done = subprocess.run([sys.executable, "-c", drawn], cwd=ROOT, env={"PATH": "", **environment}, check=True,
                              capture_output=True, text=True)
        return done.stdout.split()

    first, again, varied = run(**{SEED: "7"}), run(**{SEED: "7"}), run(**{SEED: "7", VARY: "1"})
    assert first == again == ["7", str(random.Random(7).random()), first[2]] and first[:2] == varied[:2]
    assert varied == run(**{SEED: "7", VARY: "1"}) and varied[2] != first[2]
    assert run()[0] != run()[0]


def test_varied_generators_follow_the_seed_of_the_run_alone() -> None:
    assert VariedRandom(5).random() == VariedRandom(5).random() != VariedRandom(6).random()
    assert VariedRandom(run_seed()).random() == random.Random(run_seed()).random()
    drawn = [varied_rng(seed).integers(1 << 60) for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert varied_rng(run_seed()).integers(9) == np.random.default_rng(run_seed()).integers(9)
