"""Staged messages, and the commits that make them visible in all their topics or in none.

`stages` holds staged blocks, `commits` the commits of a broker, `commit` the steps of one.
"""
