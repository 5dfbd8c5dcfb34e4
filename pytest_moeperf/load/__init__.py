"""The load client: prompts and arrivals in, one record a request out. ``driver.drive`` is the entry."""
