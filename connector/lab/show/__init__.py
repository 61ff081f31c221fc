"""Shows the lab's results to people: a page, charts, pictures."""
