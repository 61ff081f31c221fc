"""Pure verdicts: what a history of a trial shows."""
