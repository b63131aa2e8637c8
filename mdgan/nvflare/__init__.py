"""mdgan as a job of NVFlare: rank 0 in the job at its server, `mdgan join` at each site.

`server` and `site` are what NVFlare loads, and import it; nothing else here does.
"""
