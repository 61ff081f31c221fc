"""The crash lab: kills real processes with SIGKILL, and checks what became of every record."""
