"""A run from its settings to its result: its parts, its folder, its view on the console, and the functions that train."""
