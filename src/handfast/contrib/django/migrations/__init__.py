"""They make no table. ``migrate`` makes the permissions of the admin after them."""
