"""Figures: one module a section, functions from numbers to Plotly figures, one shared look (`style`)."""
