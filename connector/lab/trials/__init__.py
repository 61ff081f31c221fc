"""The lab's trials: the crash matrix, chaos, two-phase commit, the scenarios, the demo."""
