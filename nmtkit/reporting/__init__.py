"""Results as a person reads them."""
