"""The commands that show what is, what would be and why; none of them changes anything."""
