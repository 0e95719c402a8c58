"""What every executable shares: flags, durations, log lines, signals and exit codes."""
