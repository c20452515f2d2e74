"""Signatures as text: the arguments that they accept, and the types of calls."""

import pytest

from relational.expr.signature import MAX_ARGUMENTS, Signature, merged, row
from relational.types import DataType

RESOLVED = [
    ("varchar, int -> varchar", "varchar, smallint", "varchar, int", "varchar"),
    ("varchar, int? -> int", "varchar", "varchar", "int"),
    ("varchar, text... -> varchar", "varchar, int, boolean", "varchar, varchar, varchar", "varchar"),
    ("T[], T -> T[]", "int[], bigint", "bigint[], bigint", "bigint[]"),
    ("T[], T[] -> boolean", "int[], numeric(4, 2)[]", "numeric(12, 2)[], numeric(12, 2)[]", "boolean"),
    ("list, int -> int", "varchar[][], int", "varchar[][], int", "int"),
    ("texts, varchar -> varchar", "int[], varchar", "varchar[], varchar", "varchar"),
    ("exact -> first", "numeric(7, 3)", "numeric(7, 3)", "numeric(7, 3)"),
    ("any -> jsonb", "struct<a int>", "struct<a int>", "jsonb"),
    ("exact, exact -> numeric(38, 0)", "int, numeric(4, 1)", "int, numeric(4, 1)", "numeric(38, 0)"),
]
REFUSED = [
    ("varchar, int -> varchar", "varchar"),
    ("varchar, int -> varchar", "varchar, int, int"),
    ("varchar, int -> varchar", "varchar, bigint"),
    ("varchar, int? -> int", ""),
    ("T[], T -> T[]", "int[], varchar"),
    ("T[], T -> T[]", "int, int"),
    ("exact -> first", "double"),
    ("row -> int", "int[]"),
    ("texts -> varchar", "varchar"),
]


def types_of(text):
    return tuple(DataType.parse(each) for each in split(text)) if text else ()


def split(text):
    found = [""]
    for letter in text:
        depth = found[-1].count("(") + found[-1].count("<") - found[-1].count(")") - found[-1].count(">")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


@pytest.mark.parametrize(("signature", "given", "takes", "gives"), RESOLVED)
def test_a_call_has_the_types_of_its_signature(signature, given, takes, gives):
    found = Signature.parse(signature).resolve(types_of(given))
    assert found == (types_of(takes), DataType.parse(gives))


@pytest.mark.parametrize(("signature", "given"), REFUSED)
def test_other_arguments_are_refused(signature, given):
    assert Signature.parse(signature).resolve(types_of(given)) is None


def test_an_unknown_literal_is_of_the_type_that_the_signature_names():
    varchar, jsonb, ints = DataType.VARCHAR, DataType.JSONB, DataType.parse("int[]")
    paths = Signature.parse("jsonb, varchar[] -> jsonb")
    assert paths.adapt((jsonb, varchar), [False, True]) == ((jsonb, DataType.list_of(varchar)), jsonb)
    alike = Signature.parse("T[], T[] -> boolean")
    assert alike.adapt((ints, varchar), [False, True]) == ((ints, ints), DataType.BOOLEAN)
    assert alike.adapt((varchar, ints), [False, False]) is None


def test_what_a_signature_shows_and_its_limit():
    signature = Signature.parse("varchar, int?, any... -> varchar")
    assert str(signature) == "(VARCHAR, [INT], [any] …)"
    assert signature.takes_count(1) and signature.takes_count(MAX_ARGUMENTS) and not signature.takes_count(0)
    assert not signature.takes_count(MAX_ARGUMENTS + 1)


def test_a_name_in_two_families_has_the_overloads_of_both():
    first, second = row("int -> int", None), row("date -> int", None)
    assert merged({"f": (first,)}, {"f": (second,), "g": (first,)}) == {"f": (first, second), "g": (first,)}
