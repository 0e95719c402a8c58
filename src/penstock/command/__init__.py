"""The common parts of all executables: flags, durations, log lines, signals and exit codes."""
