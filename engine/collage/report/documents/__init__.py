"""Reports as JSON documents."""
