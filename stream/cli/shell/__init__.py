"""The shell of `hummock sql`: statements and backslash commands from a terminal, a file, a pipe or the command line."""
