"""Random columns: a function of seed, column and row number; the reference in Python; evenly spread."""

import random

import numpy as np
import pytest

from relational.chunk.random_values import random_fractions, random_integers, random_texts, random_words
from tests.support.drivers.seeds import run_seed

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def word(seed, column, row):
    state = mixed(mixed((seed + GOLDEN) & MASK) ^ (column * GOLDEN & MASK))
    return mixed((state + row * GOLDEN) & MASK)


def test_words_are_those_of_the_definition():
    rng = random.Random(run_seed())
    for _ in range(50):
        seed, column, first, step = rng.getrandbits(64), rng.getrandbits(20), rng.getrandbits(40), rng.randint(1, 99)
        expected = [word(seed, column, first + step * row) for row in range(20)]
        assert random_words(seed, column, first, step, 20).tolist() == expected
        assert random_fractions(seed, column, first, step, 20).tolist() == [each / 2**53 for each in
                                                                            (part >> 11 for part in expected)]
        least = rng.randint(-(1 << 63), (1 << 63) - 1)
        most = rng.randint(least, (1 << 63) - 1)
        integers = [least + (each * (most - least + 1) >> 64) for each in expected]
        assert random_integers(seed, column, first, step, 20, least, most).tolist() == integers
    assert len(set(random_integers(1, 1, 0, 1, 1_000, -(1 << 63), (1 << 63) - 1).tolist())) == 1_000
    assert set(random_integers(1, 1, 0, 1, 100, 7, 7).tolist()) == {7}


@pytest.mark.parametrize("rows", [0, 1, 999, 70_000])
def test_a_part_is_the_same_wherever_it_begins(rows):
    make = (random_words, random_fractions, lambda *p: random_integers(*p, -5, 50), lambda *p: random_texts(*p, 0, 20))
    for function in make:
        whole = list(function(7, 3, 100, 1, rows + 40))
        assert list(function(7, 3, 140, 1, rows)) == whole[40:]
        assert list(function(7, 3, 100, 2, (rows + 40) // 2)) == whole[: (rows + 40) // 2 * 2 : 2]


def test_values_are_evenly_spread_and_columns_and_seeds_differ():
    rows = 200_000
    counts = np.bincount(random_integers(1, 0, 0, 1, rows, 0, 9), minlength=10)
    assert abs(counts - rows / 10).max() < 5 * (rows / 10) ** 0.5
    assert abs(random_fractions(1, 0, 0, 1, rows).mean() - 0.5) < 0.005
    texts = random_texts(1, 0, 0, 1, rows // 10, 3, 30).to_pylist()
    assert {len(text) for text in texts} == set(range(3, 31))
    letters = np.bincount(np.frombuffer("".join(texts).encode(), np.uint8), minlength=128)
    assert letters[ord("a"): ord("z") + 1].sum() == sum(map(len, texts))
    share = letters[ord("a"): ord("z") + 1] / sum(map(len, texts))
    assert share.min() > 0.9 * 9 / 256 and share.max() < 1.1 * 10 / 256     # 256 bytes are 26 letters
    first = random_words(1, 0, 0, 1, 1_000)
    for other in (random_words(2, 0, 0, 1, 1_000), random_words(1, 1, 0, 1, 1_000)):
        assert not np.isin(first, other).any()


def test_more_text_than_a_column_holds_is_refused():
    with pytest.raises(OverflowError, match="one column"):
        random_texts(1, 1, 0, 1, 3, 1 << 30, 1 << 30)
