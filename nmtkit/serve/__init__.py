"""A server on this machine: a page to type into, and the API of LibreTranslate."""
