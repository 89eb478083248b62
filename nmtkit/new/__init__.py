"""A recipe for a user's own parallel text: `nmtkit new`."""
