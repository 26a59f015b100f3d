"""Analysis of a step's graph: its ops, what they write, and which may be copied."""
