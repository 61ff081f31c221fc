"""Delta tables: the commit of rows, offsets and epoch number, its proof, the position, and each kind of table."""
