"""One partition at its leader: group commit, journal, idempotent producers."""
