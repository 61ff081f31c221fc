"""What a person on call sees of pipelines: where they stand, and how they came there. Reads only."""
