"""The meta side: creates and drops jobs, injects and commits barriers, recovers from failures."""
