"""Reports: figures, tables and verdicts, described once and written as pictures, data and one page."""
