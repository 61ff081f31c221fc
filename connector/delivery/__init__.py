"""The four deliveries. A delivery is the order in which rows are written and offsets are stored, one file each."""
