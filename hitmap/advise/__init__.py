"""What `hitmap advise` does with its advice: files of rules and for CI, and the same requests on a live server."""
