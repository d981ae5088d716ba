"""An HTTP service that explains photos, in batches."""
