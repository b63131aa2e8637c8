"""Who may take part: certificates for both ends of every link, and the list of revoked ones.

All cryptography is that of the library `cryptography`; here stand only the names and the files.
"""
