"""The crash lab: real processes, killed with SIGKILL, and what became of every record."""
