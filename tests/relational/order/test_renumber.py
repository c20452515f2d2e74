"""renumber: groups by first appearance, as a dictionary counts them."""

import numpy as np
import pytest

from relational.order.renumber import renumber
from tests.support.drivers.seeds import seeds


@pytest.mark.parametrize("seed", seeds(5, 50))
def test_groups_are_numbered_by_first_appearance(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 7, 8, 9, 1_000, 70_000]))
    far = int(rng.choice([1, 3, 1_000, 1 << 31]))
    groups = rng.integers(-far, far, rows).astype(np.int32) * np.int32(rng.choice([1, 1 << 16]))
    numbers, distinct = renumber(groups)
    known = {}
    assert numbers.tolist() == [known.setdefault(group, len(known)) for group in groups.tolist()]
    assert distinct.tolist() == list(known) and numbers.dtype == distinct.dtype == np.int32
