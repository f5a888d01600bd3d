"""What `hitmap alerts` does beside asking: it keeps watch and tells a webhook."""
