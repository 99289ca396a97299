"""What a run shows: tables of text, figures, pictures."""
