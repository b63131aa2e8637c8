"""What all families record of their workers, for the report and `mdgan watch`."""

from mdgan.families.mdgan import shown as mdgan

SHOWN = (*mdgan.SHOWN,)
