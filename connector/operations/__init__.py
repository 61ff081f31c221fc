"""What is asked of a pipeline between epochs: status, history, rewind, maintenance, snapshots, dead letters."""
