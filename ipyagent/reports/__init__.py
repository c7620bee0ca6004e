"""What a session's journal tells of its context: by source, by turn, before and after, in money."""
