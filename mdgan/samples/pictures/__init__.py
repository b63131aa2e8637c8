"""Pictures: read from files, drawn in grids, told apart by their pixels."""
