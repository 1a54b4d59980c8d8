"""Figures with matplotlib: the style sheet, axes with round numbers, curves with intervals, and files."""
