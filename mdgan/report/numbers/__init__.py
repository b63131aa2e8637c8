"""The numbers behind the figures: plain Python on what a run recorded, nothing is drawn here."""
