"""The practice model: rules that answer as a model does; it says so, and is no language model."""
