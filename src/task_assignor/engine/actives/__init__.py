"""Who gets which item: two flows, and what is around them."""
