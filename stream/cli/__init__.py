"""The command `hummock`."""
