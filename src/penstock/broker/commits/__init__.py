"""Staged messages, and the commits that make them visible in all their topics or in none.

`stages` holds what was staged, `commits` the commits of a broker, `run` the steps of one.
"""
