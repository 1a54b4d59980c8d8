"""Runs whose agents are split into fleets that live elsewhere: server, scores and records here, fleets on Ray."""
