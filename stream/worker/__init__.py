"""Where actors run: built from plans, fed with barriers, watched until each epoch is synced."""
