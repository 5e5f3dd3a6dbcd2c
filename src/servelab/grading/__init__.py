"""Grade notebooks of exercises: run each in a fresh kernel, judge its answers with the package's own checks.

`python -m servelab progress` and `python -m servelab grade` are made of this.
"""
