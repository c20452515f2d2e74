"""The shape of the tree under load, simulated by sizes alone: write amplification, and the number of runs per read."""

import pytest

from hummock.options import MIB, CompactionOptions
from tests.support.worlds.lsm_simulation import TreeSimulation

OPTIONS = CompactionOptions()


def load(commits, options=OPTIONS, **how):
    tree = TreeSimulation(options, **how)
    for _ in range(commits):
        tree.commit()
    loaded = tree.runs
    tree.settle()
    print(tree)
    return tree, loaded


@pytest.mark.parametrize("compact_mib", [400, 800, 1_600])
def test_fifty_million_random_rows_are_written_less_than_five_times(compact_mib):
    tree, _ = load(500, compact=compact_mib * MIB)
    assert tree.amplification <= 5
    assert tree.most_runs <= OPTIONS.l0_runs_limit
    assert tree.runs_of_a_key <= 2.5 * OPTIONS.l0_runs
    assert [level.number for level in tree.version.levels if level.runs][-1] == OPTIONS.last_level


def test_rows_in_key_order_are_written_once_if_commits_compress_them_and_else_twice():
    tree, _ = load(500, is_sequential=True, flush_codec="lz4")
    assert tree.amplification == 1 and tree.tasks == 0 and tree.runs <= 2 * OPTIONS.l0_runs
    tree, _ = load(500, is_sequential=True)
    assert tree.amplification <= 2 and tree.moves > 0 and tree.runs <= 2 * OPTIONS.l0_runs


def test_small_commits_cost_two_tiers_more_at_most():
    tree, _ = load(3_000, rows_per_commit=10_000)
    assert tree.amplification <= 7 and tree.most_runs <= OPTIONS.l0_runs_limit


def test_a_large_tree_has_two_levels_and_keeps_their_ratio():
    tree, _ = load(4_000)
    sizes = [level.data_bytes for level in tree.version.levels]
    assert tree.amplification <= 10 and tree.most_runs <= OPTIONS.l0_runs_limit
    assert 0 < sizes[5] <= 1.5 * sizes[6] / OPTIONS.level_multiplier


@pytest.mark.slow
def test_a_very_large_tree_stays_in_shape():
    tree, _ = load(12_000)
    sizes = [level.data_bytes for level in tree.version.levels]
    assert tree.amplification <= 15 and tree.most_runs <= 1.25 * OPTIONS.l0_runs_limit
    assert sum(sizes[:-1]) <= sizes[-1] / 4


def test_tasks_are_bounded_and_so_is_what_is_stored_for_a_while():
    """150 million rows where level 0 overlaps all of the last level: one task for all of it would have 16 GB."""
    tree, _ = load(1_500)
    assert tree.largest_task <= 1.1 * OPTIONS.task_bytes
    assert tree.most_stored <= 1.25 * tree.ingested and tree.amplification <= 6.5
