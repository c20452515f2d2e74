"""Nothing without a user: product code is reached by product code or the API, or `kept.txt` says why it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.definitions import Definition, Module, Reader, read_modules
from tests.architecture.reachability import Reachability

LIST = Path(__file__).with_name("kept.txt")
KEPT = [line.split()[0] for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")]


def is_of(definition: Definition, entry: str) -> bool:
    return f"{definition.qualified}.".startswith(f"{entry}.")


def shown(definitions: list[Definition]) -> str:
    return "\n".join(sorted(f"{each.where}: {each.qualified}" for each in definitions))


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules()


@pytest.fixture(scope="module")
def without_caller(modules: dict[str, Module]) -> list[Definition]:
    return Reachability(modules).unreached


def test_code_that_nothing_calls_is_listed(modules: dict[str, Module], without_caller: list[Definition]) -> None:
    kept = [each for each in without_caller if any(is_of(each, entry) for entry in KEPT)]
    left = Reachability(modules, kept).unreached
    assert not left, f"nothing calls these: remove them, move them to tests/support, or list why not:\n{shown(left)}"


@pytest.mark.parametrize("entry", KEPT)
def test_what_is_listed_is_there_and_has_no_caller(
    entry: str, modules: dict[str, Module], without_caller: list[Definition]
) -> None:
    found = [each for module in modules.values() for each in module.definitions.values() if is_of(each, entry)]
    assert found, "it is gone: remove it from the list"
    called = [each for each in found if each not in without_caller and not each.name.startswith("__")]
    assert not called, f"it has a caller: remove it from the list\n{shown(called)}"


def planted(**sources: str) -> dict[str, Module]:
    """Modules `stream.<name>` of these texts; `_` in a name is the dot of a file's suffix."""
    modules: dict[str, Module] = {}
    for file, text in sources.items():
        name = f"stream.{file.partition('_')[0]}"
        Reader(modules.setdefault(name, Module(name)), Path(file)).read(text)
    return modules


def names_without_caller(modules: dict[str, Module]) -> set[str]:
    return {each.qualified.removeprefix("stream.") for each in Reachability(modules).unreached}


def test_a_function_that_only_itself_or_an_uncalled_one_calls_is_found() -> None:
    modules = planted(a="def alone():\n    alone()\ndef user():\n    used()\ndef used(): pass\nLIMIT = 3\n",
                      b="from stream.a import used\ndef used_here(): pass\nused_here()\n")
    assert names_without_caller(modules) == {"a.alone", "a.user", "a.used", "a.LIMIT"}


def test_names_are_followed_through_imports_and_modules() -> None:
    modules = planted(a="def first(): pass\ndef second(): pass\ndef third(): pass\n",
                      b="from stream.a import first as renamed\nfrom stream import a\nrenamed()\na.second()\n")
    assert names_without_caller(modules) == {"a.third"}


def test_a_method_is_used_where_its_name_follows_a_dot() -> None:
    modules = planted(a='class Box:\n    LEAST = 1\n    def get(self): pass\n    def put(self): pass\n'
                        '    def __len__(self): return 1\n    @property\n    def size(self): return f"{self.LEAST}"\n',
                      b="from stream.a import Box\nput = Box()  # .put\nput.get()\n'''.put()'''\n")
    assert names_without_caller(modules) == {"a.Box.put", "a.Box.size", "a.Box.LEAST"}
    modules["stream.b"].says.add(".size")
    assert names_without_caller(modules) == {"a.Box.put"}


def test_overrides_of_other_libraries_classes_are_called_by_them() -> None:
    modules = planted(a="import threading\nfrom typing import Protocol\nclass Work(threading.Thread):\n"
                        "    def run(self): pass\nclass Able(Protocol):\n    def act(self): pass\nWork, Able\n")
    assert names_without_caller(modules) == {"a.Able.act"}


DECLARED = """
cdef extern from * nogil:
    '''int own(int at);'''
    int own "c_own"(int at) noexcept
    int other(int at) noexcept
cdef enum:
    FIRST = 1
    SECOND = 2
cdef int probe(int at) noexcept nogil
cdef class Index:
    cdef int rows
    cdef int locate(self, int key) except -1
    cpdef int find(self)
"""
DEFINED = """
cdef int probe(int at) noexcept nogil:
    return own(at) + FIRST
cdef class Index:
    cdef int locate(self, int key) except -1:
        return probe(key)
    cpdef int find(self):
        return self.locate(1)
"""


def test_compiled_code_is_read_with_its_declarations() -> None:
    modules = planted(a_pxd=DECLARED, a_pyx=DEFINED, b_pyx="from stream.a cimport Index\nprint(Index().rows)\n")
    found = {"a.other", "a.FIRST", "a.SECOND", "a.own", "a.probe", "a.Index.locate", "a.Index.find"}
    assert names_without_caller(modules) == found
    modules["stream.b"].says.add(".find")
    assert names_without_caller(modules) == {"a.other", "a.SECOND"}
