"""The mathematics of the papers on plain tensors: no process, socket, file or print."""
