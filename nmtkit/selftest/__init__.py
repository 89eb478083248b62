"""What a user can check of nmtkit on a machine of their own."""
