"""Federations over the network: server and nodes on different machines exchange messages; docs/federation.md."""
