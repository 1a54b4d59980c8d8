"""Playing with learnt policies, and our problems as Gymnasium environments."""
