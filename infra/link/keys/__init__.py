"""Authentication on a link: keys, certificates, and the files that hold them."""
