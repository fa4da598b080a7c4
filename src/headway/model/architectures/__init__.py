"""Model families: what a checkpoint of each says of its sizes, rotary frequencies and weights."""
