"""Builds every compiled room: one extension per `.pyx`, one set of Cython directives for all.

HUMMOCK_CYTHON_DEBUG=1  turns bounds, wraparound and initialisation checks on and asserts in C; --force turns back

The `cython -a` page of each room, which shows its Python calls, is left beside its C in build/cython.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGES = ("hummock", "relational", "stream")
DEBUG = os.environ.get("HUMMOCK_CYTHON_DEBUG") == "1"
GENERATED = "build/cython-debug" if DEBUG else "build/cython"     # C is made anew for newer sources alone
IS_LINUX = sys.platform == "linux"
ONE_ROUNDING = ("-ffp-contract=off",)       # else sums of floats differ from machine to machine, and exact ones are not
WORKERS = os.cpu_count() or 1
SHARED = "hummock.cython_shared"        # what Cython would repeat in each room: memory views, errors, function objects

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": not DEBUG,
    "embedsignature": True,
    "binding": True,
}


def sources() -> list[str]:
    """Every `.pyx` of the three packages, relative to this file, in a stable order."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.pyx"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def extension(source: str) -> Extension:
    contract = source.removesuffix(".pyx") + ".pxd"
    flags = ["-O1", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0", "-DNDEBUG", *(["-fno-plt"] if IS_LINUX else [])]
    return Extension(
        source.removesuffix(".pyx").replace("/", "."),
        [source],
        include_dirs=["."],
        depends=[contract] if Path(contract).exists() else [],
        extra_compile_args=[*flags, *ONE_ROUNDING, "-Wno-unused-function", "-Wno-unreachable-code"],
    )


def shared() -> Extension:
    """The extension whose C Cython writes itself; it halves what the others take to compile."""
    return Extension(SHARED, [f"{SHARED.replace('.', '/')}.c"], extra_compile_args=["-O2", "-g0", "-DNDEBUG"])


class BuildExtensions(build_ext):
    """Writes the C of the rooms only where they are built: other commands of an installation need none."""

    def build_extensions(self) -> None:
        made = cythonize(
            self.extensions,
            shared_utility_qualified_name=SHARED,
            nthreads=WORKERS,
            annotate=not DEBUG,
            compiler_directives=DIRECTIVES,
            build_dir=GENERATED,
        )
        written = {each.name: each for each in made}
        for each in self.extensions:
            each.sources, each.depends = written[each.name].sources, written[each.name].depends
        super().build_extensions()


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(
        ext_modules=[shared(), *(extension(source) for source in sources())],
        cmdclass={"build_ext": BuildExtensions},
        options={"build_ext": {"parallel": WORKERS}},
    )
