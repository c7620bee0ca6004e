"""`ipyagent eval`: how many questions about tables a model answers right, each asked in a kernel of its own."""
