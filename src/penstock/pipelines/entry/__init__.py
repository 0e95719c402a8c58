"""The script for spark-submit, alone in its directory: Spark puts that on the module path."""
