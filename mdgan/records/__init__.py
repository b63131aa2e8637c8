"""The folder of a run: writes its files, and reads them back as typed values."""
