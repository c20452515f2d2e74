import random

import pytest

from relational.sql.lexer import complete_statements, statements
from tests.support.drivers.seeds import run_seed


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
        ("-- only; a comment\n;; ", [], " "),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text, complete, rest):
    pieces, remainder = complete_statements(text)
    assert ([piece.source for piece in pieces], remainder.source) == (complete, rest)


def test_what_is_complete_is_what_the_whole_text_has():
    seed = run_seed()
    rng = random.Random(seed)
    parts = ["SELECT 1", "'a;b'", '"c;d"', "$$ ; ' $$", "-- e;\n", "/* f; /* g */ ; */", "E'\\';'", "x", "$1", ";", ";"]
    for _ in range(300):
        text = " ".join(rng.choice(parts) for _ in range(rng.randrange(12))) + " ;"
        pieces, rest = complete_statements(text)
        assert [each.source for each in pieces] == [each.source for each in statements(text)], (seed, text)
        assert rest.source == "", (seed, text)
