"""Kinds of samples: how each is shown, told apart, written and scored."""
