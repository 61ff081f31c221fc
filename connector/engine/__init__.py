"""One epoch of a pipeline, from the ranges of offsets to the commit. Start with the coordinator and the epoch."""
