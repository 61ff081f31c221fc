"""What Spark lacks: safe SQL text, errors raised by rows, staging, checksums and schema changes."""
