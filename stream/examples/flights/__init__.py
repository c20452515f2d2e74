"""Views over a year of flights: a connector, the job and its views."""
