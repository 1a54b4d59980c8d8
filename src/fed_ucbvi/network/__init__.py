"""A federation for real: server and nodes on different machines exchange the paper's messages; docs/federation.md."""
