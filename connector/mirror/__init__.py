"""A topic in the cluster that it was mirrored to: where there is what a table wants next."""
