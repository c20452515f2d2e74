import random
import re

import pytest

from relational.sql.lexer import LexerState, Piece, after_comment, read_line, statements
from tests.support.drivers.seeds import run_seed

SLOW_PART = re.compile(
    r"(?P<open>/\*)|(?P<end>;)|[eE]'(?:[^'\\]|\\.|'')*+'|[^\W\d][\w$]*|\d+(?:\.\d*)?(?:[eE][+-]?\d*)?|"
    r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|--[^\n]*|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$|.",
    re.DOTALL,
)
OPEN_QUOTE = re.compile(r"[eE]?'|\"|\$(?:[^\W\d]\w*)?\$")


def slowly_parted(text, stops_at="'\"$"):
    """Oracle: the statements that end with a semicolon, and what follows, by an expression that reads a quote to its
    end at once. One that is not closed, by a mark of `stops_at`, has all the rest."""
    found, start, at = [], 0, 0
    while at < len(text):
        match, quote = SLOW_PART.match(text, at), OPEN_QUOTE.match(text, at)
        if quote is not None and match.end() <= quote.end() and quote[0][-1] in stops_at:
            break
        at = after_comment(text, at, len(text)) if match["open"] else match.end()
        if match["end"]:
            found.append(text[start : at - 1])
            start = at
    return [each for each in found if not is_blank(each)], text[start:]


def is_blank(text):
    return Piece(text, 0, len(text)).is_empty


def parted(text):
    """What `slowly_parted` gives, by `read_line`, line by line."""
    found, rest, state = [], "", LexerState()
    for line in text.splitlines(keepends=True):
        ends, state = read_line(line, state)
        for end, start in zip(ends, [0, *(each.at + 1 for each in ends)], strict=False):
            found += [] if end.is_blank else [rest + line[start : end.at]]
            rest = ""
        rest += line[ends[-1].at + 1 :] if ends else line
    assert state.is_blank == is_blank(rest)
    return found, rest


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", " SELECT 2"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';'; x", ["SELECT ';'"], " x"),
        ("SELECT 'it''s;'; ", ["SELECT 'it''s;'"], " "),
        (r"SELECT E'it\'s;'; ", [r"SELECT E'it\'s;'"], " "),
        ('SELECT "a;b";', ['SELECT "a;b"'], ""),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end\n"], ""),
        ("SELECT /* ; */ 1;;", ["SELECT /* ; */ 1"], ""),
        ("SELECT /* /* ; */ ; */ 1; 2", ["SELECT /* /* ; */ ; */ 1"], " 2"),
        ("SELECT /* open; ", [], "SELECT /* open; "),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("1; SELECT E'open\\'; x", ["1"], " SELECT E'open\\'; x"),
        ('SELECT "open;', [], 'SELECT "open;'),
        ("AS $$a; 'b$$; x", ["AS $$a; 'b$$"], " x"),
        ("AS $t1$ $$; $t1$; x; $1;$2;", ["AS $t1$ $$; $t1$", " x", " $1", "$2"], ""),
        ("AS $$ open; $a$", [], "AS $$ open; $a$"),
        ("1; $a$ open; $b$ x $b$;", ["1"], " $a$ open; $b$ x $b$;"),
        ("SELECT $1$;$1$;", ["SELECT $1$", "$1$"], ""),
        ("-- only; a comment\n;; ", [], " "),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text, complete, rest):
    assert parted(text) == (complete, rest)


PARTS = ["SELECT 1", "'a;b'", '"c;d"', "$$ ; ' $$", "-- e;\n", "/* f; /* g */ ; */", "E'\\';'", "x", "$1", ";", ";"]
TAGS = ["$$", "$a$", "$b$", "$ab", "x$a$", "$"]
ENDS = ["'", '"', "E'", "e'", "''", "\\", "/*", "*/", "--", "\n", "\n", " ", "é", "1e5"]


def random_texts(parts, count):
    """Texts, without a parameter between two dollar signs, and the seed."""
    seed = run_seed()
    rng = random.Random(seed)
    for _ in range(count):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(30)))
        if not re.search(r"\$\d\w*\$", text):
            yield text, seed


def test_what_is_complete_is_what_the_whole_text_has():
    for text, seed in random_texts([f"{part} " for part in PARTS], 300):
        assert parted(f"{text};") == ([each.source for each in statements(f"{text};")], ""), (seed, text)


def test_a_text_is_parted_line_by_line_as_it_is_at_once():
    for text, seed in random_texts([*PARTS, *TAGS, *ENDS], 5_000):
        assert parted(text) == slowly_parted(text), (seed, text)


def test_a_text_is_parted_where_a_slow_expression_says():
    seen = 0
    for text, seed in random_texts([*PARTS, *TAGS, *ENDS], 5_000):
        whole = f"{text}\n--"  # one with nothing after its only semicolon is parted without a look at its quotes
        found, rest = slowly_parted(whole, stops_at="$")
        wanted = found if is_blank(rest) else [*found, rest]
        assert [each.source for each in statements(whole)] == wanted, (seed, text)
        seen += len(wanted)
    assert seen > 4_000


class CountedText(str):
    """A text that counts the characters that are searched for a tag."""

    searched = 0

    def find(self, wanted, start=0):
        found = super().find(wanted, start)
        if wanted.startswith("$"):
            self.searched += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("closes", [False, True])
def test_no_part_of_a_text_is_searched_twice_for_the_end_of_a_tag(closes):
    tags = [f"$a{number}$ ; " + f"$a{number}$ ; " * closes for number in range(2_000)]
    text = CountedText(f"SELECT {''.join(tags)}; SELECT 1;")
    pieces = list(statements(text))
    assert len(pieces) == (2_001 if closes else 1)
    assert 0 < text.searched <= len(text)
