"""The package's name and version; the build reads the version from here."""

PROGRAM = "fed-ucbvi"
"""What the package, its command and its files are called."""

__version__ = "0.3.0"
