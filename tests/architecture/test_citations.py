"""Each rule that code, tests or documents cite, as in [S3] or [C6, C7], is defined in a document of the repository."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.layers import PACKAGES, ROOT

DOCUMENTS = {"C": ROOT / "stream/CHECKPOINT.md", **dict.fromkeys("SRP", ROOT / "docs/semantics.md")}
FOLDERS = [ROOT / name for name in (*PACKAGES, "tests", "bench", "docs")]
SUFFIXES = {".py", ".pyx", ".pxd", ".md"}
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*") if path.suffix in SUFFIXES)
CITATION = re.compile(r"\[([CSRP]\d+(?:,\s+[CSRP]\d+)*)\]")
DEFINITION = re.compile(r"^(?:\* )?\*\*\[([CSRP]\d+)\]", re.MULTILINE)
LOOSE = re.compile(r"\(?[Rr]ulings?\s+[RS]\d+|\((?:[CRP]\d+|S[0-24-9]|S\d\d)(?:, [CRPS]\d+)*\)")


def defined(path: Path) -> Counter[str]:
    return Counter(DEFINITION.findall(path.read_text()))


def cited(text: str) -> set[str]:
    return {rule for found in CITATION.findall(text) for rule in re.split(r",\s+", found)}


RULES = {rule for path in set(DOCUMENTS.values()) for rule in defined(path)}
CITED = {path.relative_to(ROOT).as_posix(): found for path in FILES if (found := cited(path.read_text()))}


def test_a_rule_is_defined_once_in_the_document_of_its_letter() -> None:
    for path in set(DOCUMENTS.values()):
        found = defined(path)
        assert found and set(found.values()) == {1}
        assert {DOCUMENTS[rule[0]] for rule in found} == {path}


@pytest.mark.parametrize("path", CITED)
def test_what_is_cited_is_there(path: str) -> None:
    assert CITED[path] <= RULES


def test_a_rule_is_there_because_something_cites_it() -> None:
    documents = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS.values()}
    users = set().union(*(found for path, found in CITED.items() if path not in documents))
    tests_of_the_store = {f"S{number}" for number in range(1, 21)}       # test_rulings has test_s1_... for each
    assert RULES - users - tests_of_the_store == set()


def test_citations_have_one_form() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES if path != Path(__file__)}
    assert {name: LOOSE.findall(text) for name, text in texts.items() if LOOSE.search(text)} == {}
