import pytest

from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError

KNOWN = ("a", "b")


def options(**given):
    return OptionValues("x", given, KNOWN)


def test_values_and_defaults():
    assert options(a="t").text("a") == "t" and options().text("a", "d") == "d"
    assert options(a="-5").integer("a", 1, -9, 9) == -5 and options().integer("a", 1, 0, 9) == 1
    assert options(a="TRUE").flag("a", False) is True and options().flag("a", False) is False
    assert options(a="y").choice("a", "x", ("x", "y")) == "y"
    assert options(a="\t").character("a", ",") == "\t" and options(a="").character("a", ",") == ""


@pytest.mark.parametrize(("read", "fault"), [
    (lambda o: o.integer("a", 1, 0, 9), "a whole number from 0 to 9, not 'ten'"),
    (lambda o: o.flag("a", True), "true or false"),
    (lambda o: o.choice("a", "x", ("x", "y")), "x or y"), (lambda o: o.character("a", ","), "one ASCII character"),
    (lambda o: o.text("b"), "the option b is missing"),
    (lambda o: o.integer("b", None, 0, 9), "the option b is missing"),
])
def test_others_are_refused(read, fault):
    with pytest.raises(ConnectorError, match=fault):
        read(options(a="ten"))
    with pytest.raises(ConnectorError, match="no option 'c'; it has: a, b"):
        options(c="1")


@pytest.mark.parametrize("text", ["10", "-1", "1.0", "", "--1", "²", "1 "])
def test_integers_outside_of_their_range_or_form_are_refused(text):
    with pytest.raises(ConnectorError, match="a whole number from 0 to 9"):
        options(a=text).integer("a", 1, 0, 9)
