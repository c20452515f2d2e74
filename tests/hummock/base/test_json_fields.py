"""Validation of fields in JSON records."""

import pytest

from hummock.base.json_fields import U32, is_name, natural, word


@pytest.mark.parametrize("value", [-1, 1 << 64, True, 1.0, "1", None, [1]])
def test_only_integers_of_64_bits_are_natural(value):
    with pytest.raises(ValueError, match="is no integer"):
        natural(value)
    assert natural((1 << 64) - 1) == (1 << 64) - 1


def test_a_field_may_be_narrower():
    assert natural(U32 - 1, U32) == U32 - 1
    with pytest.raises(ValueError, match=r"0 \.\. 4294967295"):
        natural(U32, U32)


def test_a_word_is_a_string():
    assert word("lz4") == "lz4"
    with pytest.raises(ValueError, match="no string"):
        word(b"lz4")


def test_a_name_is_short_and_plain():
    assert all(map(is_name, ("a", "A-b_c.9", "x" * 64)))
    assert not any(map(is_name, ("", "x" * 65, "a b", "a/b", "é", "a\n")))
