"""No C face: `plan` is called once for each piece of a flush."""
