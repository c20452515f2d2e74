"""Who decides: jobs come and go, barriers are cut and committed, failures are recovered from."""
