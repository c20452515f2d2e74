"""`python -m stream` runs the command `hummock`."""

from stream.cli.main import main

if __name__ == "__main__":
    main()
