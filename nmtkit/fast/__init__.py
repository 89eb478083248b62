"""Fast versions of the computations of `nmtkit.model`; tests hold the two equal."""
