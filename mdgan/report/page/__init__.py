"""The page: HTML around the figures. Whatever comes out of files is escaped."""
