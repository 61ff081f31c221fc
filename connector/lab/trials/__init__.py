"""The experiments of the lab: the matrix of crashes, chaos, the scenarios, the demo."""
