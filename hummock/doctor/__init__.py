"""The doctor: what is wrong with a store, or will be, and which command helps."""
