"""The paper's constants and bounds."""
