"""The lab's results for people: a page, charts, pictures."""
