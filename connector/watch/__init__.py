"""What a person on call sees of pipelines: where they stand, and their last epochs. Read-only."""
