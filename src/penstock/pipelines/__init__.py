"""Pipelines: small Spark programs over the log, with one runner around all of them.

A pipeline is a module with a `PIPELINE` (see `runner.Pipeline`), and one line in
`runner.PIPELINES`. It says:

- `name`, `summary`, and a table of `Setting`s: each with a kind, a default, a help text and a rule.
  Out of this table come the command line (`penstock pipeline run NAME --table ...`), the keys of
  the TOML file (`[NAME]`), the environment (`PENSTOCK_NAME_TABLE`) and the usage text. What all
  pipelines have (`url`, `master`, `conf`, ...) is in `settings.COMMON`.
- `check(settings)`, called before Spark is started: raises ConfigError for what can't work.
- `run(session, settings, progress)`, which returns the exit code. `progress` shows how far it is
  (`progress.report`), and knows whether somebody wants an end (`progress.stopping`). A pipeline
  around a streaming query calls `follow(query, progress, *beside)` of `penstock.pipelines.streams`.

Errors go up as exceptions: the runner makes one line of them, also of those that Spark wraps.
"""
