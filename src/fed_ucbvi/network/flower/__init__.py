"""A federation under Flower: SuperLink and SuperNodes bring server and nodes together, our stream carries the run.

``settings``, ``invitation`` and ``hosting`` know nothing of Flower; ``server_app`` and ``client_app``
are the two ends that Flower loads, and need the ``flower`` extra.
"""
