"""Memory at work beside and behind a turn: recall, extraction, dreaming, the browser's data."""
