"""`python -m hummock`: the commands of `hummock.cli`, in a process of their own."""

from hummock.base.process import prepare_process
from hummock.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    prepare_process()
    main(prog_name="python -m hummock")
