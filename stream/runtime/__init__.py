"""Actors, the channels between them, and the run slots that bound how many run at once."""
