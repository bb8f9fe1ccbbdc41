"""Where the bytes of blobs are: in the database, in files, in an object store, or with the user alone."""
