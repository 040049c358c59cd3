"""`natkal bench learning`: one pass over real streams, natkal's defaults against tuned rivals."""
