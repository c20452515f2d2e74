"""The debug switch of the build reaches the generated code."""

from __future__ import annotations

import runpy

import pytest

from tests.architecture.layers import ROOT


def test_a_debug_build_takes_no_code_over_that_was_generated_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []
    for switch in ("0", "1"):
        monkeypatch.setenv("HUMMOCK_CYTHON_DEBUG", switch)
        builds.append(runpy.run_path(str(ROOT / "setup.py")))
    plain, debug = builds
    assert not plain["DIRECTIVES"]["boundscheck"] and debug["DIRECTIVES"]["boundscheck"]
    assert plain["GENERATED"] != debug["GENERATED"]
