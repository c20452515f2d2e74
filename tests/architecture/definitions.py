"""The definitions of the three packages, in Python and Cython sources alike, and the names that each of them says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.architecture.layers import PACKAGES, ROOT, module_of

STRING = re.compile(
    r"""(?P<prefix>\b[a-zA-Z]{1,2})?(?:(?P<quote>"{3}|'{3})(?P<long>.*?)(?P=quote)
    |"(?P<text>[^"\\\n]*(?:\\.[^"\\\n]*)*)"|'(?P<other>[^'\\\n]*(?:\\.[^'\\\n]*)*)')|\#[^\n]*""",
    re.DOTALL | re.VERBOSE,
)
EXPRESSION = re.compile(r"\{((?:[^{}]|\{[^{}]*\})*)\}")                 # of an f-string
IMPORT = re.compile(
    r"^[ \t]*(?:from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]*)|c?import\s+([\w.]+)[^\n]*)", re.MULTILINE)
ALIAS = re.compile(r"(\w+)(?:\s+as\s+(\w+))?")
TOKEN = re.compile(r"(?:\.\s*)?[A-Za-z_]\w*")
OPENED, CLOSED = re.compile(r"[(\[{]"), re.compile(r"[)\]}]")

TYPE = re.compile(r"(?:cdef |cpdef |ctypedef )?(?:packed )?(?:class|struct|union|fused) (\w+)")
C_ENUM = re.compile(r"(?:cdef |cpdef |ctypedef )?enum\b[ \w]*:")
C_VALUE = re.compile(r"(\w+)\s*(?:=[^,]*)?(?:,|$)")
C_FUNCTION = re.compile(r"(?:ctypedef )?(?:[\w*]+ )*\*?(\w+)\s*\((?!\*)")              # within `cdef extern`
FUNCTION = re.compile(r"(?:async )?def (\w+)|(?:cdef|cpdef) (?!extern\b)[^=(]*?(\w+)\s*\((?!\*)")
CONSTANT = re.compile(r"(?:cdef (?:[\w.*\[\]]+ )+\*?)?(\w+)\s*(?::[^=]*)?=(?!=)|cdef (?:[\w.*\[\]]+ )+\*?(\w+)\s*$")


@dataclass(slots=True)
class Definition:
    """A function, class or constant, or a member of a class. What a function defines within itself is part of it."""

    module: str
    owner: str                                        # the class around it
    name: str
    where: str                                        # file:line
    says: set[str] = field(default_factory=set)       # names, and attributes with their dot, of its own lines
    bases: list[str] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        return ".".join(filter(None, (self.module, self.owner, self.name)))


@dataclass(slots=True)
class Module:
    """A module: its `.py`, or its `.pyx` and `.pxd`."""

    name: str
    definitions: dict[tuple[str, str], Definition] = field(default_factory=dict)       # by owner and name
    says: set[str] = field(default_factory=set)       # outside of definitions: what its import executes
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)                  # name -> its module, name there

    def define(self, owner: str, name: str, where: str) -> Definition:
        return self.definitions.setdefault((owner, name), Definition(self.name, owner, name, where))


@dataclass(slots=True)
class Block:
    """An indented block: `kind` is class, function, enum or extern."""

    indent: int
    kind: str
    definition: Definition | None = None


def code_of(text: str) -> str:
    """`text` without comments and strings. A string that is a name becomes `.name`; expressions of an f-string stay."""
    def replaced(match: re.Match[str]) -> str:
        if match[0].startswith("#"):
            return ""
        short = match["text"] or match["other"] or ""
        if "f" in (match["prefix"] or "").lower():
            kept = code_of(" ".join(EXPRESSION.findall(match["long"] or short))).replace("\n", " ")
        else:
            kept = f".{short}" if short.isidentifier() else ""
        return f"({kept})" + "\n" * match[0].count("\n")
    return STRING.sub(replaced, text)


def take_imports(module: Module, code: str) -> str:
    """`code` without its imports, which `module` gets."""
    def taken(match: re.Match[str]) -> str:
        source, names, whole = match.groups()
        if whole:
            module.imports[whole.split(".")[0]] = (whole, "")
        else:
            module.imports.update({alias or name: (source, name) for name, alias in ALIAS.findall(names)})
        return "\n" * match[0].count("\n")
    return IMPORT.sub(taken, code)


class Reader:
    """Sorts the lines of a file under the definitions of its module."""

    def __init__(self, module: Module, path: Path) -> None:
        self._module, self._path = module, path
        self._blocks: list[Block] = []                # the innermost one last

    def read(self, text: str) -> None:
        depth, says = 0, self._module.says
        for number, line in enumerate(take_imports(self._module, code_of(text)).splitlines(), start=1):
            statement = line.strip()
            if statement:
                if depth <= 0:
                    says = self._begin(len(line) - len(line.lstrip()), statement, f"{self._path}:{number}")
                says.update(token.replace(" ", "") for token in TOKEN.findall(statement))
                depth += len(OPENED.findall(statement)) - len(CLOSED.findall(statement))

    def _begin(self, indent: int, statement: str, where: str) -> set[str]:
        """The set to which a statement's names belong; enters the block that it opens."""
        while self._blocks and indent <= self._blocks[-1].indent:
            self._blocks.pop()
        around = self._blocks[-1] if self._blocks else Block(-1, "module")
        says = around.definition.says if around.definition else self._module.says
        if around.kind == "function":
            return says
        owner = around.definition.name if around.definition and around.kind == "class" else ""
        if statement.startswith("cdef extern"):
            self._blocks.append(Block(indent, "extern"))
        elif C_ENUM.match(statement):
            self._blocks.append(Block(indent, "enum"))
        elif found := TYPE.match(statement):
            made = self._module.define(owner, found[1], where)
            made.bases += TOKEN.findall(statement[found.end():])
            self._blocks.append(Block(indent, "class", made))
            return made.says
        elif found := FUNCTION.match(statement):
            made = self._module.define(owner, found[1] or found[2], where)
            self._blocks.append(Block(indent, "function", made))
            return made.says
        elif around.kind == "enum":
            values = [self._module.define("", name, where) for name in C_VALUE.findall(statement)]
            return values[-1].says if values else says
        elif around.kind == "extern" and (found := C_FUNCTION.match(statement)):
            return self._module.define("", found[1], where).says
        elif (found := CONSTANT.match(statement)) and (around.kind != "class" or (found[1] or found[2]).isupper()):
            return self._module.define(owner, found[1] or found[2], where).says
        return says


def read_modules() -> dict[str, Module]:
    """All modules, by name."""
    modules: dict[str, Module] = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.p*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            module = modules.setdefault(module_of(path), Module(module_of(path)))
            Reader(module, path.relative_to(ROOT)).read(path.read_text())
    return modules
