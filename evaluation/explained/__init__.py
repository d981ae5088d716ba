"""What a model shows of one image: its units, their names, boxes, evidence and cautions."""
