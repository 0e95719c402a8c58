"""A world for message ids: clocks that differ, leaders that change, machines that are replaced."""
