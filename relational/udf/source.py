"""The source text of user functions: taken from a Python function, checked, and loaded as a module.

Loading runs the text with all rights of the process. Who loads it has asked whether that is allowed; see
`CatalogManager.allows_functions`.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from relational.errors import BindError, shortened
from relational.udf.function import MOST_SOURCE_CHARACTERS, FunctionKind, UserFunction

RAISED = (Exception, SystemExit)
"""What the text of a user raises; a `sys.exit()` must not end a thread of this process."""
MOST_LOADED = 256
"""Functions that are kept loaded."""


RETRACT = "retract"
PARTS = ("accumulate", RETRACT, "finish")
"""The functions of an aggregate with a state."""


def loaded(function: UserFunction) -> Callable[..., Any]:
    """The handler of a function. BindError."""
    return loaded_parts(function)[function.handler]


@lru_cache(maxsize=MOST_LOADED)
def loaded_parts(function: UserFunction) -> Mapping[str, Callable[..., Any]]:
    """The functions of its source that are called, by name; the text is executed once for all calls, which may come
    from several threads at once. BindError if it is no Python, fails, or lacks one of them."""
    module = ModuleType(f"user_function_{function.name}")
    try:
        code = compile(function.source, f"<function {function.name}>", "exec")
    except (SyntaxError, ValueError) as error:
        raise BindError(f"the source of function {function.name!r} is no Python: {shortened(str(error))}") from error
    try:
        exec(code, module.__dict__)
    except RAISED as error:
        raise BindError(f"the source of function {function.name!r} failed: {described(error)}") from error
    found = {name: module.__dict__.get(name) for name in part_names(function)}
    for name, part in found.items():
        if not callable(part):
            defined = [name for name, each in module.__dict__.items() if isinstance(each, FunctionType)]
            reason = f"it defines {', '.join(defined)}" if defined else "it defines no function"
            cure = "" if function.state is not None else "; WITH (handler = '…') names another one"
            raise BindError(f"the source of function {function.name!r} has no handler {name!r}: {reason}{cure}")
    return {name: part for name, part in found.items() if part is not None}


def part_names(function: UserFunction) -> tuple[str, ...]:
    """The names of the functions that its source must have."""
    if function.state is None:
        return (function.handler,)
    return PARTS if function.retracts else ("accumulate", "finish")


def defines(source: str, name: str) -> bool:
    """Whether a text, which is not executed, has a function or a value of that name; no text that is no Python has."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    targets = (target for each in body if isinstance(each, ast.Assign) for target in each.targets)
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in body) or any(
        isinstance(each, ast.Name) and each.id == name for each in targets)


def check(function: UserFunction) -> None:
    """BindError unless the source can be loaded and what is called of it takes the arguments."""
    if len(function.source) > MOST_SOURCE_CHARACTERS:
        raise BindError(f"the source of function {function.name!r} has more than {MOST_SOURCE_CHARACTERS} characters")
    for name, part in loaded_parts(function).items():
        count = handler_arguments(function, name)
        try:
            inspect.signature(part).bind(*range(count))
        except TypeError as error:
            given = f"{count} argument{'s' * (count != 1)}"
            raise BindError(f"{name} of function {function.name!r} is called with {given}: {error}") from error
        except ValueError:  # a builtin without a signature
            continue


def handler_arguments(function: UserFunction, name: str) -> int:
    """How many arguments the handler, or another part of the source, is called with: besides those of the function the
    offsets of the groups, states and groups, or the number of rows where there is no argument to have it."""
    count = len(function.arguments)
    if function.state is not None:
        return 1 if name == "finish" else count + 2
    if function.is_row_wise:
        return count
    return count + 1 if function.kind is FunctionKind.AGGREGATE else max(count, 1)


def described(error: BaseException) -> str:
    """`ValueError: text`"""
    return f"{type(error).__name__}: {shortened(str(error), 300)}"


def source_of(function: Callable[..., Any]) -> tuple[str, str]:
    """(source text, name) of a function defined by `def`. What it uses of its module must be modules: these are
    imported by the text. BindError for another callable, and for anything else that the text would lack."""
    name = getattr(function, "__name__", repr(function))
    if not isinstance(function, FunctionType) or name == "<lambda>":
        raise BindError(f"{shortened(name)!r} is no function defined by def: pass one, or the source text of a module")
    if function.__code__.co_freevars:
        used = ", ".join(function.__code__.co_freevars)
        raise BindError(f"function {name!r} uses {used} of the function around it, which its stored text would lack: "
                        "define it inside, or make it an argument")
    try:
        lines, _ = inspect.getsourcelines(function)
        text = textwrap.dedent("".join(lines))
        (definition,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:     # from Python 3.13 on, lines of `python -c`
        raise BindError(f"the source of function {name!r} is not in a file: pass its text") from error
    if not isinstance(definition, ast.FunctionDef):
        raise BindError(f"{name!r} is no plain function: pass one defined by def, or the source text of a module")
    definition_text = "\n".join(text.splitlines()[definition.lineno - 1 :])
    imports = "".join(f"import {module} as {alias}\n" for alias, module in _modules(function, name))
    return f"from __future__ import annotations\n{imports}\n{definition_text}\n", name


def _modules(function: FunctionType, name: str) -> Iterator[tuple[str, str]]:
    """(name, module) of the modules that a function uses."""
    known = function.__globals__
    for used in dict.fromkeys(_globals_of(function.__code__)):
        if used not in known or used == name:
            continue
        if not isinstance(known[used], ModuleType):
            raise BindError(f"function {name!r} uses {used!r} of its module, which its stored text would lack: import "
                            "or define it inside the function")
        yield used, known[used].__name__


def _globals_of(code: CodeType) -> Iterator[str]:
    """The global names that a function and those within it read."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)
