"""`python -m hummock`: the commands of `hummock.cli`."""

from hummock.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m hummock")
