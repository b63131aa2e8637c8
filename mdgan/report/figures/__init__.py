"""The figures. Everything here needs matplotlib; everything else in the report does not."""
