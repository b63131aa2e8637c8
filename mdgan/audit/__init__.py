"""`mdgan audit`: attacks a finished run as an insider could, and says how far that leads."""
