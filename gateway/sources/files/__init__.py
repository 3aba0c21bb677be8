"""Files as sources: single files, folders and mailboxes."""
