"""A web service that explains photos, several at once."""
