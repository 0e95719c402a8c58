"""Topics: settings, files, and the way of a publish to its partition."""
