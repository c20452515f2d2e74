"""The pipeline has no compiled face: its loop is entered once per flush or task, from Python."""
