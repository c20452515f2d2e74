"""What a merge of sorted rows keeps and what it drops, and the one loop that does it."""
