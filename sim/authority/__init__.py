"""A world for what a leader does alone: how long it goes on after another took its place."""
