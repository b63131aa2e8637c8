"""Private synthetic tables: of mdgan at several sites, and of central mechanisms with all rows."""
