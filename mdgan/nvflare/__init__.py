"""Runs mdgan as a job of NVFlare: rank 0 at NVFlare's server, `mdgan join` at each of its sites.

NVFlare loads the modules `server` and `site`. These and `cells` import NVFlare; no other does.
"""
