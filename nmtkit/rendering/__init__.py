"""Tables, charts, pages and JSON, without knowledge of what they show."""
