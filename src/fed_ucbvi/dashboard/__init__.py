"""What people and programs see of a federation while it runs: the live page, and metrics for Prometheus."""
