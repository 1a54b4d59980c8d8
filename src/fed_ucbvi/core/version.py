"""The package's name and version; the build reads the version from here."""

PROGRAM = "fed-ucbvi"
"""Name of the package, its command and its files."""

__version__ = "0.3.0"
