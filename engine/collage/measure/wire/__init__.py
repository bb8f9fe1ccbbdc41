"""Exchange data between driver and worker: messages, frames, blobs and their codecs."""
