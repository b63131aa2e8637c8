"""How a setting is declared, and read once into a typed value."""
