"""Federations over the network: server and nodes on different machines exchange the paper's messages; docs/federation.md."""
