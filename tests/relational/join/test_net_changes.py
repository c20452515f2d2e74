import random

from relational.chunk import Op
from relational.join.net_changes import net_changes
from relational.types import Schema
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import Folded, random_changes

SCHEMA = Schema.of(id="int", v="varchar")


def net(text, key=(0,)):
    return net_changes(from_pretty(text, SCHEMA), key).to_pretty()


def test_of_each_key_the_row_before_and_the_row_after_remain():
    assert net("- 1 a\n+ 1 b\nU- 1 b\nU+ 1 c") == "U- 1 a\nU+ 1 c"
    assert net("+ 2 a\n- 2 a") == ""
    assert net("+ 3 a\nU- 3 a\nU+ 3 b") == "+ 3 b"
    assert net("U- 4 a\nU+ 4 b\n- 4 b") == "- 4 a"
    assert net("- 5 a\n+ 5 b\nU- 5 b\nU+ 5 a\n+ 6 c") == "+ 6 c"


def test_the_halves_of_an_update_come_together():
    assert net("- 1 a\n+ 2 b\n+ 1 c\n- 3 d") == "U- 1 a\nU+ 1 c\n+ 2 b\n- 3 d"


def test_what_is_net_already_is_passed_on_as_it_is():
    for text in ("+ 1 a\n+ 2 b", "U- 1 a\nU+ 1 b\n- 2 c"):
        chunk = from_pretty(text, SCHEMA)
        assert net_changes(chunk, (0,)) is chunk


def test_keys_are_equal_as_in_sql():
    assert net("- . a\n+ . b") == "U- . a\nU+ . b"


def test_without_key_columns_there_is_one_row():
    assert net("- 1 a\n+ 2 b\n- 2 b\n+ 3 c", ()) == "U- 1 a\nU+ 3 c"


def test_the_result_is_the_same_as_that_of_all_changes():
    for seed in range(20):
        rng = random.Random(seed)
        chunks = random_changes(rng, SCHEMA, [(key,) for key in range(6)],
                                lambda key, rng=rng: (*key, rng.choice("abc")), chunks=8, rows=25)
        one, other = Folded((0,)), Folded((0,))
        for chunk in chunks:
            made = net_changes(chunk, (0,))
            assert one.apply_all([chunk]).rows == other.apply_all([made]).rows
            ops = [(row[0], op in (Op.DELETE, Op.UPDATE_DELETE)) for op, row in made.changes()]
            assert len(set(ops)) == len(ops)
