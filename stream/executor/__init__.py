"""One operator of a change stream per file, and what operators share."""
