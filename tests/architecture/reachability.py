"""Which definitions no product code reaches, by names.

A function, class or constant of a module is used where that module, or one that imports it, says its name; a member of
a class where some code says `.name`. What only unreached code says does not count: uses are followed from what modules
execute at their import, from the public API, and from what strings such as `module:name` name, as the command is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.architecture.definitions import ALIAS, IMPORT, Definition, Module
from tests.architecture.layers import PACKAGES, ROOT

GUIDES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MANUALS = (*GUIDES, *(ROOT / package / "README.md" for package in PACKAGES))
EXAMPLE = re.compile(r"^```python\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"""["']((?:hummock|relational|stream)[\w.]*):(\w+)["']""")
HANDED_OUT = (("relational.expr.unbound", "UnboundExpr"), ("relational.expr.unbound", "UnboundCase"))
"""Classes of objects that functions of the API return, and that nobody makes otherwise."""

OF_PYTHON = re.compile(r"__\w+__")
OWN_CONTRACTS = ("typing", "abc", "enum", "collections.abc", "dataclasses")     # call no method of a derived class


def public_names() -> Iterator[tuple[str, str]]:
    """Module and name of the API: what the packages export, and what the guides import."""
    yield from HANDED_OUT
    for package in PACKAGES:
        text = (ROOT / package / "__init__.py").read_text()
        for name in re.findall(r'"(\w+)"', text[text.index("__all__"):].partition("]")[0]):
            yield package, name
    for path in GUIDES:
        for source, names, _ in IMPORT.findall(path.read_text()):
            for name, _ in ALIAS.findall(names):
                yield source, name


def named_in_strings() -> Iterator[tuple[str, str]]:
    """Module and name of what `module:name` names: commands, connectors, work of Spark tasks."""
    for path in (ROOT / "pyproject.toml", *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))):
        yield from REFERENCE.findall(path.read_text())


def documented() -> set[str]:
    """The names within code of the manuals."""
    return {name for path in MANUALS for code in EXAMPLE.findall(path.read_text())
            for name in re.findall(r"\w+", "".join(code))}


class Reachability:
    """`unreached` is what neither an entry point nor one of `kept` reaches, functions that Python calls aside."""

    def __init__(self, modules: dict[str, Module], kept: Iterable[Definition] = ()) -> None:
        self._modules = modules
        self._reached: set[tuple[str, str, str]] = set()                    # module, owner, name
        self._next: list[Definition] = []                                   # reached, and not yet followed
        self._attributes: set[str] = set()                                  # names said after a dot
        self._waiting: dict[str, list[Definition]] = defaultdict(list)      # members of reached classes, by name
        self._members: dict[tuple[str, str], list[Definition]] = defaultdict(list)      # by module and owner
        everything = [each for module in modules.values() for each in module.definitions.values()]
        for each in everything:
            self._members[each.module, each.owner].append(each)
        self._enter(kept)
        while self._next:
            self._follow(self._next.pop())
        self.unreached = [each for each in everything if not OF_PYTHON.fullmatch(each.name)
                          and (each.module, each.owner, each.name) not in self._reached]

    def _enter(self, kept: Iterable[Definition]) -> None:
        for module in self._modules.values():
            self._say(module, module.says)
            for each in self._members[module.name, ""]:
                if OF_PYTHON.fullmatch(each.name):
                    self._reach(each)
        told, api = documented(), set[str]()
        for source, name in public_names():
            self._reach_name(source, name)
            opened, made = self._module_of(source, name), self._resolve(source, name)
            for each in self._members[opened.name, ""] if opened else []:
                if not each.name.startswith("_"):
                    self._reach(each)
            for each in self._members[made.module, made.name] if made else []:
                if each.name in told and not each.name.startswith("_"):
                    api.add(f".{each.name}")        # also of the class that it inherits the method from
        self._say(Module(""), api)
        for source, name in named_in_strings():
            self._reach_name(source, name)
        for each in kept:
            self._reach(each)

    def _reach(self, definition: Definition) -> None:
        key = definition.module, definition.owner, definition.name
        if key not in self._reached:
            self._reached.add(key)
            self._next.append(definition)

    def _follow(self, definition: Definition) -> None:
        self._say(self._modules[definition.module], definition.says)
        is_of_others = self._is_of_others(definition)
        for member in self._members[definition.module, definition.name]:
            if (is_of_others or OF_PYTHON.fullmatch(member.name) or member.name in self._attributes
                    or member.name in definition.says):
                self._reach(member)
            else:
                self._waiting[member.name].append(member)

    def _say(self, module: Module, names: set[str]) -> None:
        for name in names:
            if not name.startswith("."):
                self._reach_name(module.name, name)
                continue
            attribute = name[1:]
            for source, there in set(module.imports.values()):
                self._reach_name(f"{source}.{there}" if there else source, attribute)
            self._attributes.add(attribute)
            for member in self._waiting.pop(attribute, ()):
                self._reach(member)

    def _reach_name(self, module: str, name: str) -> None:
        found = self._resolve(module, name)
        if found is not None:
            self._reach(found)

    def _resolve(self, module: str, name: str) -> Definition | None:
        """What a name of a module means, wherever the module has it from."""
        here = self._modules.get(module)
        if here is None:
            return None
        if ("", name) in here.definitions:
            return here.definitions["", name]
        return self._resolve(*here.imports[name]) if name in here.imports else None

    def _module_of(self, source: str, name: str) -> Module | None:
        """The module that a name of a module means, if it is one."""
        here = self._modules.get(source)
        if f"{source}.{name}" in self._modules or here is None or name not in here.imports:
            return self._modules.get(f"{source}.{name}")
        return self._module_of(*here.imports[name])

    def _is_of_others(self, definition: Definition) -> bool:
        """Whether a class has a base that is not of the product, which calls the methods that it overrides."""
        imports = self._modules[definition.module].imports
        for base in definition.bases:
            source, _ = imports.get(base, (definition.module, base))
            if source.split(".")[0] not in PACKAGES:
                if source not in OWN_CONTRACTS:
                    return True
            elif (found := self._resolve(definition.module, base)) and found is not definition \
                    and self._is_of_others(found):
                return True
        return False
