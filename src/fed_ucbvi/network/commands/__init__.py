"""Commands of federations over the network."""
