"""A world of two controllers whose transactions are slow: a replaced one changes nothing."""
